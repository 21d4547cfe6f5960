"""Helpers for the tests of plugins: what a plugin adds, without a model and without a server."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import TYPE_CHECKING, Any

import pluggy
import typer

from colibri_cli import hookspecs
from colibri_cli.plugin_types import CheckContext, CheckResult, DoctorCheck, RouteRequest
from colibri_protocol.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.plugin_types import RouteHandler, TelemetrySink


def hooks_of(plugin: object) -> Any:  # noqa: ANN401 - pluggy's hook relay
    """Return the hooks of one plugin, to be called by name."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    manager.check_pending()
    return manager.hook


def run_command(plugin: object, *arguments: str) -> str:
    """Run a command line of the plugin (without `coli`) and return its standard output.

    Raises:
        ColibriError: the command refused.
    """
    app = typer.Typer(add_completion=False)

    @app.callback()
    def _root() -> None:
        """Hold the commands."""

    hooks_of(plugin).register_commands(app=app)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        typer.main.get_command(app).main(list(arguments), prog_name="coli", standalone_mode=False)
    return output.getvalue()


def checks_of(
    plugin: object,
    model_path: Path | None = None,
    config: Mapping[str, object] | None = None,
    *,
    is_deep: bool = False,
) -> dict[str, CheckResult]:
    """Run the checks the plugin adds to `coli doctor` and return their results by id."""
    found: dict[str, CheckResult] = {}
    context = CheckContext(model_path, config, resolve({}, {}, {}), is_deep)

    def register(check_id: str, check: DoctorCheck) -> None:
        found[check_id] = check(context)

    hooks_of(plugin).register_doctor_checks(register=register)
    return found


def call_route(
    plugin: object,
    path: str,
    *,
    method: str = "GET",
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> object:
    """Return what a route of the plugin answers.

    Raises:
        KeyError: it has no such route.
    """
    handlers: dict[tuple[str, str], RouteHandler] = {}

    def register(path: str, handler: RouteHandler, *, method: str = "GET") -> None:
        handlers[method, path] = handler

    hooks_of(plugin).register_routes(register=register)
    answer = handlers[method, path](RouteRequest(query or {}, body))
    return asyncio.run(_awaited(answer))


def sinks_of(plugin: object) -> dict[str, TelemetrySink]:
    """Return the receivers of figures the plugin adds, by name."""
    found: dict[str, TelemetrySink] = {}

    def register(name: str, sink: TelemetrySink, *, interval_s: float = 5.0) -> None:
        assert interval_s > 0
        found[name] = sink

    hooks_of(plugin).register_telemetry_sinks(register=register)
    return found


def parts_of(plugin: object, hook: str) -> dict[str, Any]:
    """Return what the plugin registers by name with one of the hooks that take a name and a part.

    Args:
        plugin: The module.
        hook: Such as "register_bench_tasks" or "register_model_sources".
    """
    found: dict[str, Any] = {}

    def register(name: str, part: object) -> None:
        found[name] = part

    getattr(hooks_of(plugin), hook)(register=register)
    return found


async def _awaited(answer: Any) -> object:  # noqa: ANN401 - an awaitable of anything
    return await answer
