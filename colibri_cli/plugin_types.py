"""What plugins hand over and are handed: plain data and the signatures of their functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call in `coli chat`; each call needs the user's yes.

    Args:
        name: What the model calls it by: letters, digits, `_` and `-`.
        description: What it does, for the model and for `/tools`.
        run: Gets the arguments by name; what it returns goes to the model, as JSON if it is no
            text. May be `async`. A plain function runs in a thread.
        parameters: JSON schema of the arguments, an object schema; None: it takes none.
    """

    name: str
    description: str
    run: Callable[[Mapping[str, Any]], Any]
    parameters: Mapping[str, Any] | None = None


DoctorCheck = Callable[[CheckContext], CheckResult]


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """A request to a route of a plugin; its body was read within the server's limits."""

    query: Mapping[str, str]
    body: bytes


RouteHandler = Callable[[RouteRequest], Awaitable[object]]
TelemetrySink = Callable[[Mapping[str, object]], None]
Tell = Callable[[str, int, int], None]  # what, bytes done, bytes in all
BenchTask = Callable[[], Iterable[Mapping[str, object]]]
ModelSource = Callable[[str, Path, Tell], None]
Converter = Callable[[str, Path], None]
TemplateLoader = Callable[[str], str]
View = Callable[[Mapping[str, Mapping[str, object]]], Sequence[str]]


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


class RegisterTool(Protocol):
    """Adds a tool to `coli chat`; its name must be free."""

    def __call__(self, tool: Tool) -> None:
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


class RegisterBenchTask(Protocol):
    """Adds a task; it returns rows with `ctx`, `choices` and `gold`, as the files of tasks have."""

    def __call__(self, name: str, task: BenchTask) -> None:
        """Add it."""
        ...


class RegisterModelSource(Protocol):
    """Adds a source of models.

    It is handed what stands behind `SCHEME:`, a folder to put the files of the model into, which is
    kept when it returns and thrown away when it raises, and a function that shows progress.
    """

    def __call__(self, scheme: str, source: ModelSource) -> None:
        """Add it."""
        ...


class RegisterConverter(Protocol):
    """Adds a reader of foreign checkpoints.

    It is handed what stands behind `SCHEME:` and an empty folder, and writes `config.json`, the
    tokenizer and safetensors into it; `coli convert` goes on from there and removes it at the end.
    """

    def __call__(self, scheme: str, converter: Converter) -> None:
        """Add it."""
        ...


class RegisterTemplateLoader(Protocol):
    """Adds a loader; it is handed a name and returns the TOML text of that prompt template."""

    def __call__(self, scheme: str, loader: TemplateLoader) -> None:
        """Add it."""
        ...


class RegisterView(Protocol):
    """Adds lines to `coli top`.

    The view is handed the answers of the server by route: `health`, `experts` and `profile`.
    """

    def __call__(self, title: str, view: View) -> None:
        """Add it."""
        ...


class RegisterEngineModule(Protocol):
    """Adds a module to the engine, which is another process: it is named, and imported there."""

    def __call__(self, name: str, module: str) -> None:
        """Add it."""
        ...
