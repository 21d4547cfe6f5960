"""The root of all errors of this product, and those that cross the wire.

Knows messages, stable codes and hints; knows no HTTP status and no exit code (the CLI maps codes).
Each class has one `code` in snake_case, which is never renamed.
"""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import ClassVar, Final

_NAMED_NUMBER: Final = re.compile(r"\b([a-z_]+)=([0-9]{1,18})\b")
_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class ColibriError(Exception):
    """Base of every error raised on purpose: one line what, one line what to do.

    Args:
        message: One line naming the value and the limit.
        code: Stable snake_case code; the class's own when absent.
        hint: One line with the remedy, or None.
    """

    default_code: ClassVar[str] = "colibri_error"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint

    def details(self) -> dict[str, str | int | None]:
        """Return the fields besides message, code and hint, as they cross the wire."""
        return {}


class ProtocolError(ColibriError):
    """Something that the protocol does not allow."""

    default_code = "protocol_error"


class LocalProtocolError(ProtocolError):
    """Our own code tried to send what it may not send now: a bug on this side."""

    default_code = "local_protocol_error"


class MessageTooLarge(LocalProtocolError):
    """What was to be sent is longer than the protocol allows: too much was asked for."""

    default_code = "message_too_large"


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that break the framing; the connection cannot go on.

    `messages` holds what was decoded from the same call before the fault, so that splitting the
    input differently never loses a message.
    """

    default_code = "remote_protocol_error"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)
        self.messages: tuple[object, ...] = ()


class EngineError(ColibriError):
    """The engine refused or could not finish something; `code` says what."""

    default_code = "engine_error"


class UnsupportedModel(EngineError):
    """The checkpoint is of an architecture, or uses a feature, that is not implemented."""

    default_code = "unsupported_model"


class UnsupportedQuantFormat(EngineError):
    """A tensor is stored in a number format that is not implemented."""

    default_code = "unsupported_quant_format"


class CheckpointError(EngineError):
    """A model file is missing, truncated or contradicts itself.

    Args:
        message: What is wrong.
        path: The file or directory.
        tensor: The tensor concerned, if one is.
        hint: The remedy.
    """

    default_code = "checkpoint_error"

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str],
        tensor: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = fspath(path)
        self.tensor = tensor

    def details(self) -> dict[str, str | int | None]:
        """Return path and tensor."""
        return {"path": self.path, "tensor": self.tensor}


class ContextLengthExceeded(EngineError):
    """A prompt (and what it asks for) does not fit into the context; nothing was truncated.

    Args:
        prompt_tokens: Tokens of the prompt; None when the engine did not say.
        limit: The most a prompt may have; None when the engine did not say.
        context_length: The whole context, of which some is kept for the answer; None likewise.
    """

    default_code = "context_length_exceeded"

    def __init__(
        self, prompt_tokens: int | None, limit: int | None, context_length: int | None = None
    ) -> None:
        used = "an unknown number of" if prompt_tokens is None else str(prompt_tokens)
        bound = "the context" if limit is None else f"the limit of {limit}"
        whole = "" if context_length is None else f" in a context of {context_length}"
        super().__init__(
            f"the prompt has {used} tokens, more than {bound}{whole}",
            hint="shorten the prompt or raise --ctx (COLI_CTX)",
        )
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.context_length = context_length

    @classmethod
    def from_detail(cls, detail: str, context_length: int | None = None) -> ContextLengthExceeded:
        """Read what follows CONTEXT_EXCEEDED: `8321 4094`, or `prompt_tokens=8321 capacity=4094`.

        Missing numbers are tolerated.
        """
        named = {name: int(value) for name, value in _NAMED_NUMBER.findall(detail)}
        plain = [int(word) for word in detail.split() if _PLAIN_NUMBER.fullmatch(word)]
        used = named.get("prompt_tokens", named.get("requested"))
        limit = named.get("capacity", named.get("limit"))
        if not named:
            used, limit = (*plain, None, None)[:2]
        return cls(used, limit, context_length)

    def details(self) -> dict[str, str | int | None]:
        """Return both numbers."""
        return {"prompt_tokens": self.prompt_tokens, "limit": self.limit}


class OutOfKvBlocks(EngineError):
    """No memory is left for keys and values."""

    default_code = "out_of_memory"

    def __init__(
        self,
        message: str = "no memory is left for the conversation's keys and values",
        *,
        hint: str | None = "lower --ctx (COLI_CTX) or COLI_KV_SLOTS",
    ) -> None:
        super().__init__(message, hint=hint)


class ExpertReadFailed(EngineError):
    """An expert could not be read while a request needed it; the engine goes on."""

    default_code = "expert_read_failed"

    @classmethod
    def from_detail(cls, detail: str) -> ExpertReadFailed:
        """Return the error that `detail` of an ERROR line tells of: what failed, then a remedy."""
        message, is_there, hint = detail.rpartition("; ")
        return cls(message, hint=hint) if is_there else cls(detail or "an expert cannot be read")

    @property
    def detail(self) -> str:
        """Both, as they cross the wire."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class KernelUnavailable(EngineError):
    """A kernel variant was demanded that this CPU or this build lacks.

    Args:
        isa: The name demanded.
        available: The names that would work, best first.
    """

    default_code = "kernel_unavailable"

    def __init__(self, isa: str, available: tuple[str, ...] | list[str] = ()) -> None:
        names = ", ".join(available)
        super().__init__(
            f"kernels for {isa!r} are not available on this machine"
            + (f" (available: {names})" if names else ""),
            hint="unset COLI_ISA to use the best available variant",
        )
        self.isa = isa
        self.available = tuple(available)

    def details(self) -> dict[str, str | int | None]:
        """Return the name demanded and the available ones, comma-separated."""
        return {"isa": self.isa, "available": ",".join(self.available)}


class BadOption(EngineError):
    """A field of a request has a wrong type, a value out of range, or an unknown name.

    Args:
        name: The field.
        why: What is wrong with it, without the name ("must be in 0..2, not 3").
    """

    default_code = "bad_option"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why

    def details(self) -> dict[str, str | int | None]:
        """Return name and reason."""
        return {"name": self.name, "why": self.why}


class SettingsError(ColibriError):
    """A setting has a value that cannot be used.

    Args:
        message: What is wrong, naming the value.
        setting: Name of the setting's row ("temperature").
        source: Where the value came from ("COLI_TEMP", "--temp", "coli.toml").
        hint: The remedy.
    """

    default_code = "settings_error"

    def __init__(self, message: str, *, setting: str, source: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting = setting
        self.source = source

    def details(self) -> dict[str, str | int | None]:
        """Return setting and source."""
        return {"setting": self.setting, "source": self.source}


def reason_of(error: Exception) -> str:
    """Return why something failed, without the numbers and quotes of Python's own text.

    "/disk/a: No such file or directory" for an error of the system that names a file.
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
