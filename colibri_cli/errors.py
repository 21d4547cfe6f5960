"""Errors of the command line and the supervisor, and what each code means outside.

`ERROR_TABLE` is the one place that maps a code to an HTTP status and a process exit code.
Errors of the wire and the engine live in `colibri_protocol.errors`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from colibri_protocol.errors import ColibriError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_MODEL: Final = 3
EXIT_UNREACHABLE: Final = 5
EXIT_ENGINE: Final = 6
EXIT_INTERRUPTED: Final = 130
EXIT_CLOSED_PIPE: Final = 141
EXIT_TERMINATED: Final = 143


class UsageError(ColibriError):
    """The command line asks for something that does not exist or does not fit together."""

    default_code = "usage_error"


class ModelNotGiven(ColibriError):
    """A command needs a model and none was named."""

    default_code = "model_not_given"

    def __init__(self) -> None:
        super().__init__(
            "no model was given: name a model folder, a .gguf file or a pulled model with"
            " --model or COLI_MODEL",
            hint="`coli pull demo` fetches a small one",
        )


class ModelNotFound(ColibriError):
    """The named model is neither a path nor a pulled model."""

    default_code = "model_not_found"


class StoreError(ColibriError):
    """The model store on disk cannot be read or written."""

    default_code = "store_error"


class PullError(ColibriError):
    """A model could not be fetched, checked or built."""

    default_code = "pull_failed"


class OutputError(ColibriError):
    """What was asked for could not be written where it belongs."""

    default_code = "output_failed"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="make room there, or write to another place")


class LogError(ColibriError):
    """The log of conversations cannot be read or written, or has not what was asked for."""

    default_code = "log_error"


class NoCodeBlock(ColibriError):
    """Only the code of an answer was asked for, and it has none."""

    default_code = "no_code_block"


class JobFailed(ColibriError):
    """A job of the engine ended with an error; `code` is the one it gave."""

    default_code = "job_failed"


class TuneError(ColibriError):
    """Settings of speed could not be measured."""

    default_code = "tune_failed"


class DiagError(ColibriError):
    """A report of the regression harness cannot be kept."""

    default_code = "diag_failed"


class PluginError(ColibriError):
    """A plugin or its table in the configuration file is wrong.

    Args:
        message: What is wrong.
        plugin: Its name.
        hint: The remedy.
    """

    default_code = "plugin_error"

    def __init__(self, message: str, *, plugin: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.plugin = plugin


class ChatFormatError(ColibriError):
    """A conversation cannot be turned into a prompt of this model."""

    default_code = "chat_format_error"


class SupervisorError(ColibriError):
    """Something about the engine process."""

    default_code = "supervisor_error"


class EngineStartError(SupervisorError):
    """The engine process did not come up."""

    default_code = "engine_start_failed"


class EngineHung(SupervisorError):
    """The engine process stopped answering and was ended."""

    default_code = "engine_hung"


class EngineNotReady(SupervisorError):
    """There is no engine to talk to at the moment (starting, restarting or stopped).

    Args:
        message: Which of these.
        ready_in_s: When one is expected; None: nobody knows.
    """

    default_code = "engine_not_ready"

    def __init__(self, message: str, *, ready_in_s: float | None = None) -> None:
        super().__init__(message)
        self.ready_in_s = ready_in_s


class EngineCrashed(SupervisorError):
    """The engine process ended while it was needed.

    Args:
        message: One line: exit code or signal.
        exit_code: Its exit code, None when a signal ended it.
        signal: Name of that signal ("SIGKILL"), or None.
        stderr_tail: The last lines it wrote.
        hint: The remedy.
    """

    default_code = "engine_crashed"

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        stderr_tail: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail


class RequestRefused(ColibriError):
    """The engine answered a request with an error line."""

    default_code = "request_refused"


class EmptyPrompt(RequestRefused):
    """A prompt without tokens."""

    default_code = "empty_prompt"


class CapabilityMissing(ColibriError):
    """The engine did not announce what this request needs.

    Args:
        message: What it cannot do.
        option: The option concerned, by its name in a request's options; None when it is no option.
        hint: The remedy.
    """

    default_code = "capability_missing"

    def __init__(self, message: str, *, option: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.option = option


class Overloaded(ColibriError):
    """There is no room for a request now.

    Args:
        message: What is full, with numbers.
        retry_after_s: When it is worth asking again.
        hint: The remedy.
    """

    default_code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class QueueFull(Overloaded):
    """As many requests wait as may wait."""

    default_code = "queue_full"


class QueueTimeout(Overloaded):
    """A request waited as long as it may."""

    default_code = "queue_timeout"


class RateLimited(Overloaded):
    """A key has used up what it may take for now."""

    default_code = "rate_limited"


class SchedulerClosed(Overloaded):
    """The server is shutting down."""

    default_code = "scheduler_closed"


class ServerStartError(ColibriError):
    """The server cannot listen where it was told to."""

    default_code = "server_start_failed"


class ServerUnreachable(ColibriError):
    """A server that was named does not answer, or not as one of ours."""

    default_code = "server_unreachable"


class ServerRefused(ColibriError):
    """A server we are a client of refused a request or broke off its answer.

    Args:
        message: The server's words.
        status: Its HTTP status.
        hint: The remedy.
        retry_after_s: When it is worth asking again, where the server says so.

    Attributes:
        word: The server's own code for it, or None.
        kind: The server's own type of it, or None.
        param: The field it names, or None.
    """

    default_code = "server_refused"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retry_after_s = retry_after_s
        self.word: str | None = None
        self.kind: str | None = None
        self.param: str | None = None


class Outcome(NamedTuple):
    """What an error means to an HTTP client and to a shell."""

    http_status: int
    exit_code: int


ERROR_TABLE: Final[dict[str, Outcome]] = {
    "usage_error": Outcome(400, EXIT_USAGE),
    "settings_error": Outcome(400, EXIT_USAGE),
    "bad_option": Outcome(400, EXIT_USAGE),
    "plugin_error": Outcome(500, EXIT_USAGE),
    "capability_missing": Outcome(400, EXIT_USAGE),
    "chat_format_error": Outcome(400, EXIT_FAILED),
    "context_length_exceeded": Outcome(400, EXIT_FAILED),
    "empty_prompt": Outcome(400, EXIT_FAILED),
    "request_refused": Outcome(500, EXIT_FAILED),
    "model_not_given": Outcome(500, EXIT_MODEL),
    "model_not_found": Outcome(404, EXIT_MODEL),
    "checkpoint_error": Outcome(500, EXIT_MODEL),
    "unsupported_model": Outcome(500, EXIT_MODEL),
    "unsupported_quant_format": Outcome(500, EXIT_MODEL),
    "no_model": Outcome(500, EXIT_MODEL),
    "insufficient_memory": Outcome(503, EXIT_MODEL),
    "kernel_unavailable": Outcome(500, EXIT_USAGE),
    "out_of_memory": Outcome(503, EXIT_FAILED),
    "expert_read_failed": Outcome(500, EXIT_FAILED),
    "saved_conversation_unusable": Outcome(500, EXIT_FAILED),
    "store_error": Outcome(500, EXIT_FAILED),
    "pull_failed": Outcome(500, EXIT_FAILED),
    "job_failed": Outcome(500, EXIT_FAILED),
    "no_code_block": Outcome(500, EXIT_FAILED),
    "log_error": Outcome(500, EXIT_FAILED),
    "output_failed": Outcome(500, EXIT_FAILED),
    "conversion_failed": Outcome(500, EXIT_FAILED),
    "diag_failed": Outcome(500, EXIT_FAILED),
    "tune_failed": Outcome(500, EXIT_FAILED),
    "overloaded": Outcome(503, EXIT_FAILED),
    "queue_full": Outcome(429, EXIT_FAILED),
    "rate_limited": Outcome(429, EXIT_FAILED),
    "queue_timeout": Outcome(429, EXIT_FAILED),
    "scheduler_closed": Outcome(503, EXIT_FAILED),
    "server_start_failed": Outcome(500, EXIT_FAILED),
    "server_unreachable": Outcome(502, EXIT_UNREACHABLE),
    "server_refused": Outcome(502, EXIT_UNREACHABLE),
    "engine_error": Outcome(500, EXIT_FAILED),
    "engine_start_failed": Outcome(503, EXIT_ENGINE),
    "engine_crashed": Outcome(503, EXIT_ENGINE),
    "engine_hung": Outcome(503, EXIT_ENGINE),
    "engine_not_ready": Outcome(503, EXIT_ENGINE),
    "supervisor_error": Outcome(500, EXIT_ENGINE),
    "protocol_error": Outcome(500, EXIT_ENGINE),
    "local_protocol_error": Outcome(500, EXIT_ENGINE),
    "message_too_large": Outcome(400, EXIT_FAILED),
    "remote_protocol_error": Outcome(500, EXIT_ENGINE),
    "colibri_error": Outcome(500, EXIT_FAILED),
    "internal_error": Outcome(500, EXIT_FAILED),
}


def outcome_of(error: ColibriError) -> Outcome:
    """Return HTTP status and exit code of an error, by its code, else by its class."""
    row = ERROR_TABLE.get(error.code) or ERROR_TABLE.get(error.default_code)
    return row or ERROR_TABLE["colibri_error"]
