"""What plugins hand over and are handed: plain data and the signatures of their functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.chat.command import ChatCommand
    from colibri_protocol.settings import ResolvedSettings

# Raised when a hook changes so that older plugins no longer fit.
API_VERSION = 1


class CheckStatus(StrEnum):
    """How a check of `coli doctor` ended; only `fail` makes the whole fail."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of `coli doctor`: a summary of one line, and details as plain data."""

    status: CheckStatus
    summary: str
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a check may look at.

    Args:
        model_path: Directory or GGUF file; None: the named model does not exist.
        config: The model's `config.json`; None where there is none that can be read.
        settings: Effective settings.
        is_deep: Whether reading much was asked for.
    """

    model_path: Path | None
    config: Mapping[str, object] | None
    settings: ResolvedSettings
    is_deep: bool = False


DoctorCheck = Callable[[CheckContext], CheckResult]


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """A request to a route of a plugin; its body was read within the server's limits."""

    query: Mapping[str, str]
    body: bytes


RouteHandler = Callable[[RouteRequest], Awaitable[object]]
TelemetrySink = Callable[[Mapping[str, object]], None]


class RegisterCheck(Protocol):
    """Adds a check; ids are dotted, such as `storage.raid`."""

    def __call__(self, check_id: str, check: DoctorCheck) -> None:
        """Add it."""
        ...


class RegisterChatCommand(Protocol):
    """Adds a command to `coli chat`; its names must be free."""

    def __call__(self, command: ChatCommand) -> None:
        """Add it."""
        ...


class RegisterRoute(Protocol):
    """Adds a route below `/plugins/`; it needs a key where the server has one.

    The handler returns what is sent as JSON.
    """

    def __call__(self, path: str, handler: RouteHandler, *, method: str = "GET") -> None:
        """Add it."""
        ...


class RegisterSink(Protocol):
    """Adds a function that gets the figures of a running server every few seconds."""

    def __call__(self, name: str, sink: TelemetrySink, *, interval_s: float = 5.0) -> None:
        """Add it."""
        ...


class RegisterSetting(Protocol):
    """Declares a key of the table `[plugins.NAME]`; values have the type of the default."""

    def __call__(self, key: str, default: str | float | bool, help: str) -> None:  # noqa: A002
        """Add it."""
        ...
