"""How an end that is no error travels through the program."""


class Terminated(BaseException):
    """We were asked to end by SIGTERM or SIGHUP; not an error, so nothing catches it by chance."""


class ClosedPipe(BaseException):
    """Whoever read our output has gone away (`coli run … | head -1`)."""
