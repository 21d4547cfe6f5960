"""The errors of the engine process and the exit code each one ends it with before READY.

The tree itself stands in `colibri_protocol.errors`, because its leaves cross the wire; engine
modules import them from here. Those added below never reach a gateway by name.

    EngineError
    ├ UnsupportedModel · UnsupportedQuantFormat · CheckpointError ·
    │   InsufficientMemory · NoModel                                                       exit 3
    ├ KernelUnavailable · BadOption · BadChoice                                          exit 2
    ├ ConversionError                                                                    exit 1
    ├ ExpertReadFailed        one request; the engine goes on: `ERROR id READ_FAILED detail`
    └ RequestRefused            one request; the wire's `ERROR id CODE detail`
    SettingsError                                                                        exit 2
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from colibri_protocol.errors import (
    BadOption,
    CheckpointError,
    ColibriError,
    ContextLengthExceeded,
    EngineError,
    ExpertReadFailed,
    KernelUnavailable,
    OutOfKvBlocks,
    SettingsError,
    UnsupportedModel,
    UnsupportedQuantFormat,
    reason_of,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "EXIT_FAILURE",
    "EXIT_MODEL",
    "EXIT_SETTINGS",
    "BadChoice",
    "BadOption",
    "CheckpointError",
    "ColibriError",
    "ContextLengthExceeded",
    "ConversionError",
    "EngineError",
    "ExpertReadFailed",
    "InsufficientMemory",
    "KernelUnavailable",
    "NoModel",
    "OutOfKvBlocks",
    "RequestRefused",
    "SettingsError",
    "UnsupportedModel",
    "UnsupportedQuantFormat",
    "exit_code",
    "reason_of",
    "unreadable",
]

EXIT_FAILURE: Final = 1
EXIT_SETTINGS: Final = 2
EXIT_MODEL: Final = 3


class InsufficientMemory(EngineError):
    """The weights do not fit the memory this process may use.

    Attributes:
        needed_bytes: The least that runs; 0: not known.
    """

    default_code = "insufficient_memory"
    needed_bytes: int = 0


class ConversionError(EngineError):
    """A conversion cannot be begun, continued or finished as asked."""

    default_code = "conversion_failed"


class BadChoice(EngineError):
    """Choices that do not fit each other or the model."""

    default_code = "usage_error"


class NoModel(EngineError):
    """Nobody said which model to load."""

    default_code = "no_model"


class RequestRefused(EngineError):
    """One request cannot be served; crosses the wire as `ERROR id CODE detail`.

    Args:
        wire_code: The line's first word after the id ("SLOT_BUSY").
        detail: What follows it.
    """

    default_code = "request_refused"

    def __init__(self, wire_code: str, detail: str = "") -> None:
        super().__init__(f"{wire_code} {detail}".rstrip())
        self.wire_code = wire_code
        self.detail = detail


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """Return what to say of a file of a model that cannot be opened or read; names it twice."""
    if error.errno == errno.ENOENT and path.is_symlink():
        hint = f"{path.name} is a link to a file that is gone: copy or pull the model again"
    elif error.errno == errno.ENOENT:
        hint = f"{path.name} is gone: copy or pull the model again"
    elif error.errno in {errno.EACCES, errno.EPERM}:
        hint = f"allow reading {path.name} and its directory (chmod)"
    elif error.errno == errno.EISDIR:
        hint = f"put the file itself in place of the directory {path.name}: copy or pull it again"
    else:
        hint = f"check the disk of {path.name}; copy or pull the model again"
    return CheckpointError(f"cannot read {path}: {error.strerror or error}", path=path, hint=hint)


_MODEL_ERRORS: Final = (
    UnsupportedModel,
    UnsupportedQuantFormat,
    CheckpointError,
    InsufficientMemory,
    NoModel,
)
_SETTINGS_ERRORS: Final = (SettingsError, KernelUnavailable, BadOption, BadChoice)


def exit_code(error: BaseException) -> int:
    """Return the code the process ends with when `error` stops it before READY."""
    if isinstance(error, _MODEL_ERRORS):
        return EXIT_MODEL
    if isinstance(error, _SETTINGS_ERRORS):
        return EXIT_SETTINGS
    return EXIT_FAILURE
