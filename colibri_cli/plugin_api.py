"""Everything a plugin may import of coli: what is listed here stays, the rest may change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from colibri_cli.chat.command import Candidate, Chat, ChatCommand
from colibri_cli.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, ModelNotGiven, UsageError
from colibri_cli.hookspecs import hookimpl
from colibri_cli.model_store.store import exclusive, locate_model
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, path_of, takes
from colibri_cli.paths import atlas_file
from colibri_cli.plugin_engine import LocalEngine, local_engine
from colibri_cli.plugin_types import (
    API_VERSION,
    CheckContext,
    CheckResult,
    CheckStatus,
    DoctorCheck,
    RegisterBenchTask,
    RegisterChatCommand,
    RegisterCheck,
    RegisterConverter,
    RegisterEngineModule,
    RegisterModelSource,
    RegisterRoute,
    RegisterSetting,
    RegisterSink,
    RegisterTemplateLoader,
    RegisterTool,
    RegisterView,
    RouteHandler,
    RouteRequest,
    TelemetrySink,
    Tell,
    Tool,
)
from colibri_cli.settings import effective_settings, prepare
from colibri_cli.wrapping import say
from colibri_protocol.errors import ColibriError
from colibri_protocol.settings import ResolvedSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

Result = TypeVar("Result")

__all__ = [
    "API_VERSION",
    "EXIT_FAILED",
    "EXIT_OK",
    "EXIT_USAGE",
    "Candidate",
    "Chat",
    "ChatCommand",
    "CheckContext",
    "CheckResult",
    "CheckStatus",
    "ColibriError",
    "DoctorCheck",
    "EngineOptions",
    "JsonOptions",
    "LocalEngine",
    "ModelNotGiven",
    "OutputOptions",
    "RegisterBenchTask",
    "RegisterChatCommand",
    "RegisterCheck",
    "RegisterConverter",
    "RegisterEngineModule",
    "RegisterModelSource",
    "RegisterRoute",
    "RegisterSetting",
    "RegisterSink",
    "RegisterTemplateLoader",
    "RegisterTool",
    "RegisterView",
    "ResolvedSettings",
    "RouteHandler",
    "RouteRequest",
    "TelemetrySink",
    "Tell",
    "Tool",
    "UsageError",
    "atlas_file",
    "effective_settings",
    "exclusive",
    "hookimpl",
    "local_engine",
    "locate_model",
    "path_of",
    "prepare",
    "progress",
    "run_async",
    "say",
    "show_table",
    "takes",
]


def show_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; a column is (title, is a number)."""
    from colibri_cli.console import print_table

    print_table(columns, rows)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress in bytes on standard error; give it (what, done, in all)."""
    from colibri_cli.console import byte_meters

    with byte_meters() as meters:
        yield lambda what, done, total: meters.update(what, what, done, total)


def run_async(body: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end and return the result; Ctrl-C and SIGTERM cancel it.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    from colibri_cli.runtime import run_async as run

    return run(body)
