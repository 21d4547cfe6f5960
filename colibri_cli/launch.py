"""Starting a server from the command line: its options, and how they become a run.

`coli serve` and `coli web` are this, the latter with a browser.
"""

import gc
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.errors import ModelNotGiven, UsageError
from colibri_cli.greeting import greet
from colibri_cli.key_files import exposed_key_files
from colibri_cli.model_store.store import locate_model
from colibri_cli.options import EngineOptions, OutputOptions, setting
from colibri_cli.paths import atlas_file
from colibri_cli.settings import color_choice, is_dumb_terminal, prepare
from colibri_cli.wrapping import say
from colibri_protocol.errors import SettingsError
from colibri_protocol.settings import ResolvedSettings

if TYPE_CHECKING:
    from colibri_cli.backends.base import ModelCard, ServableBackend
    from colibri_cli.gateway.limits import Limits
    from colibri_cli.gateway.listeners import Address
    from colibri_cli.gateway.server import ServerOptions
    from colibri_cli.gateway.services import ServeSettings
    from colibri_cli.supervisor.lifecycle import EngineState

_MAX_TOKENS = 1024
_TEMPERATURE = 0.7  # where neither client nor settings name one
_TOP_P = 0.9
_PATIENCE_S = 10.0  # of requests, with an engine that is being restarted
_SINGLE_SLOT_FAMILIES = ("inkling", "kimi", "deepseek_v4", "olmoe", "qwen3")

_BEHIND = "Another server behind"
_NETWORK = "Network"
_ACCESS = "Access"
_QUEUE = "Requests"
_LOGS = "Logs"
_PAGE = "Dashboard"


@dataclass(frozen=True, kw_only=True)
class ServeOptions(EngineOptions, OutputOptions):
    """Options of commands that start a server."""

    upstream: Annotated[str | None, setting("upstream", _BEHIND)] = None
    upstream_kind: Annotated[str | None, setting("upstream_kind", _BEHIND)] = None
    concurrency: Annotated[str | None, setting("concurrency", _BEHIND)] = None
    engine_kind: Annotated[str | None, setting("engine_kind", _BEHIND)] = None
    tensor_parallel: Annotated[str | None, setting("tensor_parallel", _BEHIND)] = None
    pipeline_parallel: Annotated[str | None, setting("pipeline_parallel", _BEHIND)] = None
    nodes: Annotated[str | None, setting("nodes", _BEHIND)] = None
    engine_args: Annotated[str | None, setting("engine_args", _BEHIND)] = None
    host: Annotated[str | None, setting("host", _NETWORK)] = None
    port: Annotated[str | None, setting("port", _NETWORK)] = None
    uds: Annotated[str | None, setting("uds", _NETWORK)] = None
    allowed_hosts: Annotated[list[str] | None, setting("allowed_hosts", _ACCESS)] = None
    cors_origins: Annotated[list[str] | None, setting("cors_origins", _ACCESS)] = None
    api_key: Annotated[str | None, setting("api_key", _ACCESS)] = None
    api_key_file: Annotated[str | None, setting("api_key_file", _ACCESS)] = None
    key_limits: Annotated[list[str] | None, setting("key_limits", _ACCESS)] = None
    model_id: Annotated[str | None, setting("model_id", _QUEUE)] = None
    model_aliases: Annotated[list[str] | None, setting("model_aliases", _QUEUE)] = None
    kv_slots: Annotated[str | None, setting("kv_slots", _QUEUE)] = None
    max_queue: Annotated[str | None, setting("max_queue", _QUEUE)] = None
    queue_timeout: Annotated[str | None, setting("queue_timeout", _QUEUE)] = None
    max_tokens: Annotated[str | None, setting("max_tokens", _QUEUE)] = None
    temperature: Annotated[str | None, setting("temperature", _QUEUE)] = None
    top_p: Annotated[str | None, setting("top_p", _QUEUE)] = None
    think: Annotated[bool | None, setting("think", _QUEUE)] = None
    max_body_mib: Annotated[str | None, setting("max_body_mib", _QUEUE)] = None
    drain_timeout: Annotated[str | None, setting("drain_timeout", _QUEUE)] = None
    access_log: Annotated[bool | None, setting("access_log", _LOGS)] = None
    log_format: Annotated[str | None, setting("log_format", _LOGS)] = None
    log_file: Annotated[str | None, setting("log_file", _LOGS)] = None
    atlas: Annotated[str | None, setting("atlas", _PAGE)] = None
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Plain lines instead of the live panel.",
            metavar="",
            rich_help_panel=_LOGS,
        ),
    ] = False

    def flags(self) -> dict[str, object]:
        """Return the values given for settings; repeated flags become one list."""
        return {
            **super().flags(),
            "cors_origins": ",".join(self.cors_origins or ()) or None,
            "key_limits": ";".join(self.key_limits or ()) or None,
            "model_aliases": ",".join(self.model_aliases or ()) or None,
            "allowed_hosts": None,  # they add to the variable, see `_allowed_hosts`
        }


def serve(
    options: ServeOptions,
    command: str,
    *,
    dashboard: Callable[[], Path | None],
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the end.

    Args:
        options: Those of the command.
        command: Its name, also of its table in the configuration file.
        dashboard: Returns the folder of the built page; called once nothing else is wrong.
        on_ready: Called with the server's URL when the model is loaded.
    """
    settings = prepare(options, command)
    _check(settings)
    greet(options, settings, command)
    has_panel = _has_panel(options)
    _configure_access_log(settings, has_panel=has_panel)
    from colibri_cli.runtime import run_async

    serving = _serving(options, settings, dashboard(), on_ready, has_panel=has_panel)
    run_async(serving)


def _check(settings: ResolvedSettings) -> None:
    """Refuse what cannot be meant before anything is started."""
    from colibri_cli.backends.upstreams.opening import check_fit

    check_fit(settings)
    if settings.text("model") is None and settings.text("upstream") is None:
        raise ModelNotGiven


async def _serving(
    options: ServeOptions,
    settings: ResolvedSettings,
    dashboard: Path | None,
    tell_ready: Callable[[str], None] | None,
    *,
    has_panel: bool,
) -> None:
    from colibri_cli.gateway.extensions import route_of, run_with_sinks
    from colibri_cli.gateway.serving import ServePlan, ServerRun
    from colibri_cli.gateway.serving_text import bound_text, ready_text
    from colibri_cli.plugin_loader import plugin_routes, plugin_sinks

    server_options = _server_options(options, settings)
    serve_settings = _serve_settings(settings, dashboard, server_options.keys.names)

    def say(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(text)
            sys.stderr.flush()

    def on_ready(run: ServerRun, card: "ModelCard") -> None:
        say(ready_text(run, card))
        # What was loaded stays: 40 ms of the loop for each time the collector looks through it.
        gc.collect()
        gc.freeze()
        if tell_ready is not None:
            tell_ready(run.url)

    plan = ServePlan(
        options=server_options,
        settings=serve_settings,
        drain_s=settings.number("drain_timeout") or 0.0,
        on_bound=lambda run: say(bound_text(run)),
        on_ready=on_ready,
        extra_routes=tuple(map(route_of, plugin_routes())),
    )
    run = ServerRun(_backend_maker(settings), plan)
    if not has_panel:
        await run_with_sinks(run, plugin_sinks())
        return
    from colibri_cli.terminal.serve_panel import ServePanel

    has_color = color_choice(settings, is_off=options.no_color) is not False
    async with ServePanel(run, has_color=has_color):
        await run_with_sinks(run, plugin_sinks())


def _has_panel(options: ServeOptions) -> bool:
    if options.plain or options.quiet or options.verbose or is_dumb_terminal():
        return False
    return sys.stderr is not None and sys.stderr.isatty()


def _configure_access_log(settings: ResolvedSettings, *, has_panel: bool) -> None:
    """Send request lines and log lines where the settings want them."""
    from colibri_cli.gateway.access_log import LOGGER_NAME
    from colibri_cli.logs import add_log_file

    log_file = settings.text("log_file")
    wanted = settings.switch("access_log")
    is_on = wanted if wanted is not None else (log_file is not None or not has_panel)
    logging.getLogger(LOGGER_NAME).setLevel(logging.INFO if is_on else logging.WARNING)
    if log_file is None:
        return
    try:
        add_log_file(Path(log_file).expanduser())
    except OSError as error:
        raise SettingsError(
            f"the log file {log_file} cannot be written ({error.strerror})",
            setting="log_file",
            source="--log-file",
            hint="name a file in a folder that exists and is yours",
        ) from error


def _backend_maker(
    settings: ResolvedSettings,
) -> "Callable[[Callable[[EngineState], None]], ServableBackend]":
    from colibri_cli.backends.opening import native_backend
    from colibri_cli.backends.upstreams.opening import is_served_elsewhere, served_upstream
    from colibri_cli.supervisor.spawn import engine_family

    def make(on_state: "Callable[[EngineState], None]") -> "ServableBackend":
        if is_served_elsewhere(settings):
            return served_upstream(settings, on_state)
        num_slots = settings.integer("kv_slots") or 1
        limits = {"kv_slots": num_slots}
        if not settings.is_given("max_tokens"):
            limits["max_tokens"] = _MAX_TOKENS
        backend = native_backend(
            settings, restarts=True, patience_s=_PATIENCE_S, extra=limits, on_state=on_state
        )
        launch = backend.supervisor.launch
        family = engine_family(launch.model_path)
        if not launch.is_native and num_slots > 1 and family in _SINGLE_SLOT_FAMILIES:
            raise UsageError(
                f"an engine of the family {family} has one slot, not {num_slots}",
                hint="leave out --kv-slots",
            )
        return backend

    return make


def _serve_settings(
    settings: ResolvedSettings, dashboard: Path | None, key_names: tuple[str, ...]
) -> "ServeSettings":
    from colibri_cli.backends.upstreams.opening import is_served_elsewhere
    from colibri_cli.gateway.services import ServeSettings
    from colibri_cli.supervisor.shares import parse_shares

    # What nobody asked for is left to the server behind, if there is one.
    is_ours = not is_served_elsewhere(settings)
    return ServeSettings(
        model_id=settings.text("model_id") or "",
        aliases=_words(settings.text("model_aliases")),
        max_tokens=settings.integer("max_tokens") or (_MAX_TOKENS if is_ours else None),
        temperature=_sampling(settings, "temperature", _TEMPERATURE if is_ours else None),
        top_p=_sampling(settings, "top_p", _TOP_P if is_ours else None),
        thinking=_thinking(settings, is_ours=is_ours),
        has_visible_keepalive=settings.switch("visible_keepalive") is True,
        kv_slots=_num_places(settings),
        max_queue=settings.integer("max_queue") or 0,
        queue_timeout_s=_number(settings, "queue_timeout", 300.0),
        has_keys=bool(key_names),
        shares=parse_shares(settings.text("key_limits"), key_names),
        created=int(time.time()),
        dashboard=dashboard,
        atlas=_atlas(settings, is_ours=is_ours),
    )


def _sampling(settings: ResolvedSettings, name: str, usual: float | None) -> float | None:
    value = settings.number(name)
    return usual if value is None else value


def _thinking(settings: ResolvedSettings, *, is_ours: bool) -> bool | None:
    if not is_ours and not settings.is_given("think"):
        return None
    return settings.switch("think") is True


def _num_places(settings: ResolvedSettings) -> int:
    """Return how many requests run at once."""
    from colibri_cli.backends.upstreams.opening import is_served_elsewhere

    name = "concurrency" if is_served_elsewhere(settings) else "kv_slots"
    return settings.integer(name) or 1


def _atlas(settings: ResolvedSettings, *, is_ours: bool) -> Path | None:
    """Return the named file, which must exist, or where the model's own would be.

    Raises:
        SettingsError: the named one is no file.
    """
    named, model = settings.text("atlas"), settings.text("model")
    if named is None:
        return atlas_file(locate_model(model)[1]) if is_ours and model is not None else None
    path = Path(named).expanduser()
    if not path.is_file():
        raise SettingsError(
            f"there is no file {path}",
            setting="atlas",
            source="--atlas",
            hint="make one: coli atlas sweep, then coli atlas analyze",
        )
    return path


def _server_options(options: ServeOptions, settings: ResolvedSettings) -> "ServerOptions":
    from colibri_cli.gateway.auth import load_keys
    from colibri_cli.gateway.server import ServerOptions

    for warning in exposed_key_files(settings):
        say(f"coli: {warning}")
    key_file = settings.text("api_key_file")
    return ServerOptions(
        addresses=_addresses(settings),
        keys=load_keys(
            settings.text("api_key"), None if key_file is None else Path(key_file).expanduser()
        ),
        allowed_hosts=_allowed_hosts(options, settings),
        cors_origins=_words(settings.text("cors_origins")) or None,
        limits=_limits(settings),
        may_be_exposed=settings.switch("allow_insecure_bind") is True,
        has_json_log=settings.text("log_format") == "json",
    )


def _addresses(settings: ResolvedSettings) -> "tuple[Address, ...]":
    from colibri_cli.gateway.listeners import TcpAddress, UnixAddress

    socket = settings.text("uds")
    host, port = settings.text("host") or "127.0.0.1", settings.integer("port")
    tcp = TcpAddress(host, 8000 if port is None else port)
    if socket is None:
        return (tcp,)
    unix = UnixAddress(Path(socket).expanduser())
    return (unix, tcp) if settings.is_given("host") or settings.is_given("port") else (unix,)


def _limits(settings: ResolvedSettings) -> "Limits":
    from colibri_cli.gateway.limits import Limits

    usual = Limits()
    needed = _num_places(settings) + (settings.integer("max_queue") or 0) + 8
    per_address = settings.integer("max_connections_per_ip")
    deadline = _number(settings, "read_deadline", usual.head_s)
    return replace(
        usual,
        max_body_bytes=(settings.integer("max_body_mib") or 4) * 1024 * 1024,
        max_connections=settings.integer("max_connections") or usual.max_connections,
        max_connections_per_address=per_address or max(usual.max_connections_per_address, needed),
        is_loopback_exempt=per_address is None,
        head_s=deadline,
        body_s=deadline,
        idle_s=deadline,
    )


def _allowed_hosts(options: ServeOptions, settings: ResolvedSettings) -> tuple[str, ...]:
    from_flags = [word for text in options.allowed_hosts or () for word in _words(text)]
    return (*_words(settings.text("allowed_hosts")), *from_flags)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word for part in (text or "").split(",") if (word := part.strip()))


def _number(settings: ResolvedSettings, name: str, default: float) -> float:
    value = settings.number(name)
    return default if value is None else value
