"""Process entry of `coli`: `--version` at once, everything else through `colibri_cli.app`.

Owns what the shell sees: exit codes, one-line errors, closed pipes, Ctrl-C and SIGTERM. Imports
nothing heavy, so that `coli --version` answers before Typer is loaded.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from colibri_cli import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_protocol.errors import ColibriError

PROGRAM = "coli"
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
_LIKENESSES = {"·": "-", "→": "->", "…": "...", "─": "-", "│": "|"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `coli` command line and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_missing_streams()
    return _guarded(arguments)


def _open_missing_streams() -> None:
    """Open what whoever started us closed, so that writing there goes nowhere instead of failing.

    A file or a socket opened later would else get the number of the missing stream, and the engine
    would inherit it as one.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        stream = open(number, mode, encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
        setattr(sys, name, stream)


def _guarded(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        return _print_version()
    from colibri_cli import errors
    from colibri_cli.termination import ClosedPipe, Terminated

    _tolerate_narrow_encodings()
    _raise_on_end_signals()
    try:
        exit_code = _run(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, ClosedPipe):
        _silence_closed_streams()
        return errors.EXIT_CLOSED_PIPE
    except OSError as error:  # of the flush: all others became an exit code
        return _told_unwritten(error, arguments)
    except KeyboardInterrupt:
        return errors.EXIT_INTERRUPTED
    except Terminated:
        return errors.EXIT_TERMINATED
    return exit_code


def _print_version() -> int:
    try:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        from colibri_cli.errors import EXIT_CLOSED_PIPE

        _silence_closed_streams()
        return EXIT_CLOSED_PIPE
    except OSError as error:
        return _told_unwritten(error, ["--version"])
    return 0


def _told_unwritten(error: OSError, arguments: list[str]) -> int:
    """Tell that results could not be written, and return the exit code."""
    from colibri_cli.errors import OutputError, outcome_of

    where = "standard output" if error.filename is None else repr(str(error.filename))
    problem = OutputError(f"cannot write to {where}: {error.strerror or error}")
    _report(problem, arguments)
    _silence_closed_streams()
    return outcome_of(problem).exit_code


def _run(arguments: list[str]) -> int:
    from typer import TyperException

    from colibri_cli.errors import EXIT_USAGE, outcome_of
    from colibri_cli.settings import use_early_options, wants_traceback
    from colibri_protocol.errors import ColibriError

    use_early_options(arguments)
    try:
        if arguments in (["-h"], ["--help"]):  # nothing at all may be a shell that completes
            from colibri_cli.help_page import page

            sys.stdout.write(page())
            return 0
        from colibri_cli.app import invoke

        return invoke(arguments, PROGRAM)
    except TyperException as error:  # Typer's own: unknown option, wrong value, missing argument
        from colibri_cli.wrong_use import wrong_use

        _report(wrong_use(error, _command_of(arguments)), arguments)
        return EXIT_USAGE
    except ColibriError as error:
        if wants_traceback(arguments):
            _print_traceback()
        _report(error, arguments)
        return outcome_of(error).exit_code
    except BrokenPipeError:  # the reader left; outside commands, as while help is written
        raise
    except Exception as error:  # noqa: BLE001 - the command main: whatever is left is one line
        if wants_traceback(arguments):
            _print_traceback()
        if isinstance(error, OSError) and error.errno in _FULL:
            return _told_unwritten(error, arguments)
        problem = ColibriError(
            f"unexpected {type(error).__name__}: {_first_line(str(error)) or 'no details'}",
            code="internal_error",
            hint="run again with --debug to see where",
        )
        _report(problem, arguments)
        return outcome_of(problem).exit_code


def _tolerate_narrow_encodings() -> None:
    """Write a likeness or "?" where a stream cannot encode a character, instead of failing."""
    codecs.register_error("likeness", _likeness)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if sys.platform == "win32":
                stream.reconfigure(encoding="utf-8")
            # surrogateescape is that of the C locale, backslashreplace that of standard error
            elif stream.errors in {"strict", "surrogateescape", "backslashreplace"}:
                stream.reconfigure(errors="likeness")


def _likeness(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_LIKENESSES.get(character, "?") for character in text), error.end


def _raise_on_end_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the program, so that children and files are cleaned up."""
    import signal

    from colibri_cli.termination import Terminated

    def end(number: int, _frame: object) -> None:
        raise Terminated(signal.Signals(number).name)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            try:
                signal.signal(number, end)
            except ValueError:  # not the main thread, as in some tests
                return


def _report(error: ColibriError, arguments: list[str]) -> None:
    """Write what happened and what to do on stderr; JSON when `--json` was asked for."""
    usual_hint = _usual_hint(error, arguments)
    if "--json" in arguments:
        import json

        body = {"code": error.code, "message": error.message, "hint": error.hint or usual_hint}
        _write_error(json.dumps({"error": body}, ensure_ascii=False))
        return
    from colibri_cli.terminal.answer_text import error_lines
    from colibri_cli.wrapping import fitted

    first, *rest = error_lines(error, usual_hint)
    lines = [f"{PROGRAM}: {first}", *rest]
    with suppress(ValueError):  # closed
        lines = fitted(lines, sys.stderr)
    for line in lines:
        _write_error(line)


def _usual_hint(error: ColibriError, arguments: list[str]) -> str | None:
    """Return what to do about a wrong use that says no more itself."""
    from colibri_cli.errors import UsageError

    return f"see `{_command_of(arguments)} --help`" if isinstance(error, UsageError) else None


def _write_error(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody listens, or it is full; the exit code still tells
        _silence_closed_streams()


def _command_of(arguments: list[str]) -> str:
    from colibri_cli.discovery import command_names

    return " ".join([PROGRAM, *[word for word in arguments if word in command_names()][:1]])


def _first_line(text: str) -> str:
    return " ".join(text.split())


def _print_traceback() -> None:
    from colibri_cli.console import print_traceback

    print_traceback()


def _silence_closed_streams() -> None:
    """Point standard streams that take nothing at the null device: exit flushes raise nothing."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(null, stream.fileno())
    os.close(null)
