"""Loading plugins, and asking them for what they add; one that is broken never stops coli.

A plugin that fails is named on standard error, once, and left out of everything afterwards.
Plugins are loaded only by what can use them: a command nobody here knows, the root help, `doctor`,
`serve` and `plugins`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import pluggy
import typer

from colibri_cli import hookspecs
from colibri_cli.discovery import SHORT_NAMES, command_names
from colibri_cli.errors import PluginError
from colibri_cli.plugin_sources import plugin_sources
from colibri_cli.plugin_types import API_VERSION, DoctorCheck, RouteHandler, TelemetrySink
from colibri_cli.settings import plugin_choice
from colibri_cli.wrapping import say
from colibri_protocol.errors import ColibriError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from colibri_cli.chat.command import Chat, ChatCommand, CommandTable
    from colibri_cli.plugin_sources import PluginSource

    RunCommand = Callable[[Chat, str], Awaitable[None]]

ROUTE_PREFIX: Final = "/plugins/"
_MAX_PROBLEM: Final = 300
_MIN_INTERVAL_S: Final = 0.5

Declared = dict[str, str | float | bool]


@dataclass(slots=True)
class PluginState:
    """A plugin and what became of it.

    `state` is "loaded", "disabled" or "broken"; `problem` says why it is broken.
    """

    source: PluginSource
    state: str = "loaded"
    problem: str | None = None
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginRoute:
    """A route a plugin adds."""

    plugin: str
    method: str
    path: str
    handler: RouteHandler


@dataclass(frozen=True, slots=True)
class PluginSink:
    """A receiver of figures a plugin adds."""

    plugin: str
    name: str
    sink: TelemetrySink
    interval_s: float


@dataclass(slots=True)
class Plugins:
    """All plugins, and how to ask those that were loaded."""

    manager: pluggy.PluginManager
    is_strict: bool = False
    states: list[PluginState] = field(default_factory=list)

    def each(self, hook: str) -> Iterator[tuple[PluginState, Callable[..., Any]]]:
        """Yield the loaded plugins that implement a hook, with their function."""
        for state in self.states:
            plugin = self.manager.get_plugin(state.source.name)
            if state.state == "loaded" and plugin is not None and hook in state.hooks:
                yield state, partial(self._call, state, plugin, hook)

    def discard(self, state: PluginState, problem: str) -> None:
        """Leave a plugin out from now on, and say so.

        Raises:
            PluginError: a broken plugin is to end the command.
        """
        state.state, state.problem = "broken", " ".join(problem.split())[:_MAX_PROBLEM]
        if self.manager.has_plugin(state.source.name):
            self.manager.unregister(name=state.source.name)
        label = f"{state.source.name} {state.source.version}".strip()
        if self.is_strict:
            raise PluginError(
                f"the plugin {label} is broken: {state.problem}",
                plugin=state.source.name,
                hint=f"repair it, or `coli plugins disable {state.source.name}`",
            )
        say(f"coli: the plugin {label} is broken and left out: {state.problem}")

    def _call(self, state: PluginState, plugin: object, hook: str, **given: object) -> bool:
        """Call one plugin's hook; False: it failed and was left out."""
        others = [p for p in self.manager.get_plugins() if p is not plugin]
        caller = self.manager.subset_hook_caller(hook, others)
        try:
            caller(**given)
        except ColibriError as error:
            self.discard(state, error.message)
            return False
        except Exception as error:  # noqa: BLE001 - the plugin loader: whatever a plugin raises
            self.discard(state, f"{hook}: {type(error).__name__}: {error}")
            return False
        return True


@cache
def load_plugins() -> Plugins:
    """Load all plugins that are enabled, once per process."""
    choice = plugin_choice()
    plugins = Plugins(pluggy.PluginManager(hookspecs.PROJECT), choice.is_strict)
    plugins.manager.add_hookspecs(hookspecs)
    if choice.is_traced:
        plugins.manager.trace.root.setwriter(sys.stderr.write)
        plugins.manager.enable_tracing()
    for source in plugin_sources():
        state = PluginState(source)
        plugins.states.append(state)
        if not choice.is_enabled(source.name):
            state.state = "disabled"
            continue
        _load(plugins, state)
    _configure(plugins, choice.tables)
    return plugins


def plugin_commands() -> dict[str, Any]:
    """Return the commands that plugins add, by name, each a click-like command."""
    found: dict[str, Any] = {}
    plugins = load_plugins()
    for state, call in plugins.each("register_commands"):
        app = typer.Typer(add_completion=False)

        @app.callback()
        def _root() -> None:  # keeps a single command a command of a group
            """Hold the commands."""

        if not call(app=app):
            continue
        try:
            commands = dict(typer.main.get_group(app).commands)
        except Exception as error:  # noqa: BLE001 - what the plugin declared cannot be built
            plugins.discard(state, f"register_commands: {type(error).__name__}: {error}")
            continue
        taken = sorted(set(commands) & {*command_names(), *SHORT_NAMES, *found})
        if taken:
            plugins.discard(state, f"there is a command {taken[0]!r} already")
            continue
        found |= commands
    return found


def plugin_checks() -> list[tuple[str, DoctorCheck]]:
    """Return the checks plugins add to `coli doctor`."""
    found: list[tuple[str, DoctorCheck]] = []

    def register(check_id: str, check: DoctorCheck) -> None:
        found.append((check_id, check))

    for _, call in load_plugins().each("register_doctor_checks"):
        call(register=register)
    return found


def add_chat_commands(table: CommandTable) -> None:
    """Add the commands plugins have for `coli chat`; one whose name is taken costs its plugin."""
    for state, call in load_plugins().each("register_chat_commands"):
        new: list[ChatCommand] = []
        if not call(register=new.append):
            continue
        for command in new:
            try:
                table.add(replace(command, run=_guarded(state.source.name, command.run)))
            except ColibriError as error:
                load_plugins().discard(state, error.message)
                break


def plugin_routes() -> list[PluginRoute]:
    """Return the routes plugins add to `coli serve`."""
    found: list[PluginRoute] = []
    for state, call in load_plugins().each("register_routes"):
        new: list[PluginRoute] = []

        def register(
            path: str,
            handler: RouteHandler,
            *,
            method: str = "GET",
            name: str = state.source.name,
            new: list[PluginRoute] = new,
        ) -> None:
            if not path.startswith(ROUTE_PREFIX):
                raise PluginError(f"the route {path} is not below {ROUTE_PREFIX}", plugin=name)
            new.append(PluginRoute(name, method.upper(), path, handler))

        if not call(register=register):
            continue
        taken = {(route.method, route.path) for route in found}
        double = next((route for route in new if (route.method, route.path) in taken), None)
        if double is not None:
            plugins = load_plugins()
            plugins.discard(state, f"there is a route {double.method} {double.path} already")
            continue
        found += new
    return found


def plugin_sinks() -> list[PluginSink]:
    """Return the receivers of figures plugins add to `coli serve`."""
    found: list[PluginSink] = []
    for state, call in load_plugins().each("register_telemetry_sinks"):

        def register(
            name: str,
            sink: TelemetrySink,
            *,
            interval_s: float = 5.0,
            state: PluginState = state,
        ) -> None:
            interval_s = max(interval_s, _MIN_INTERVAL_S)
            found.append(PluginSink(state.source.name, name, sink, interval_s))

        call(register=register)
    return found


def _guarded(name: str, run: RunCommand) -> RunCommand:
    """Return a plugin's command as one that can only fail with an error of ours."""

    async def guarded(chat: Chat, argument: str) -> None:
        try:
            await run(chat, argument)
        except ColibriError:
            raise
        except Exception as error:  # whatever a plugin raises
            raise PluginError(
                f"the plugin {name} failed: {type(error).__name__}: {error}", plugin=name
            ) from error

    return guarded


def _load(plugins: Plugins, state: PluginState) -> None:
    name = state.source.name
    try:
        plugin = state.source.load()
        _check_version(plugin, name)
        plugins.manager.register(plugin, name=name)
        plugins.manager.check_pending()
    except PluginError as error:
        plugins.discard(state, error.message)
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin loader
        plugins.discard(state, f"{type(error).__name__}: {error}")
        return
    callers = plugins.manager.get_hookcallers(plugin) or []
    state.hooks = tuple(sorted(caller.name for caller in callers))
    if not state.hooks:
        plugins.discard(state, "it implements none of the hooks (`hookimpl` marks one)")


def _check_version(plugin: object, name: str) -> None:
    wanted = getattr(plugin, "API_VERSION", API_VERSION)
    if wanted != API_VERSION:
        raise PluginError(f"it needs plugin API {wanted}, this is {API_VERSION}", plugin=name)


def _configure(plugins: Plugins, tables: Mapping[str, Mapping[str, object]]) -> None:
    declared: dict[str, Declared] = {}
    for state, call in plugins.each("register_settings"):
        keys: Declared = {}

        def register(
            key: str,
            default: str | float | bool,
            help: str,  # noqa: A002 - the word of the hook
            keys: Declared = keys,
        ) -> None:
            keys[key] = default

        if call(register=register):
            declared[state.source.name] = keys
    for name, table in tables.items():
        _check_table(plugins, name, table, declared.get(name, {}))
    for state, call in plugins.each("configure"):
        name = state.source.name
        call(values={**declared.get(name, {}), **tables.get(name, {})})


def _check_table(plugins: Plugins, name: str, table: Mapping[str, object], keys: Declared) -> None:
    """Refuse a table or key of the configuration file that no plugin has.

    Raises:
        PluginError: naming it, and the nearest one there is.
    """
    states = {state.source.name: state for state in plugins.states}
    if name not in states:
        near = nearest(name, states)
        hint = f"did you mean [plugins.{near}]?" if near else "`coli plugins list` names them"
        raise PluginError(f"there is no plugin for [plugins.{name}]", plugin=name, hint=hint)
    if states[name].state != "loaded":
        return
    for key, value in table.items():
        if key not in keys:
            near = nearest(key, keys)
            raise PluginError(
                f"[plugins.{name}]: unknown setting {key!r}",
                plugin=name,
                hint=f"did you mean {near!r}?" if near else "see `coli plugins list`",
            )
        default = keys[key]
        wanted = (int, float) if type(default) in {int, float} else type(default)
        if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(default, bool):
            raise PluginError(
                f"[plugins.{name}]: {key} is {value!r}, it must be like {default!r}", plugin=name
            )
