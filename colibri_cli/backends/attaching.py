"""Whether `coli chat` talks to a server that already runs, and to which.

A server that was named is talked to or the reason is told. Without a name the usual address is
looked at, and used only if that changes nothing of what was asked for: it serves the wanted model,
and no option concerns an engine of our own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.upstreams.backend import UpstreamBackend
from colibri_cli.errors import ServerRefused, ServerUnreachable, UsageError
from colibri_cli.model_store.store import locate_model
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import RequestOptions
from colibri_protocol.settings import OriginKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.base import Generation
    from colibri_protocol.settings import ResolvedSettings

USUAL_URL: Final = "http://127.0.0.1:8000"
_ENGINE_SETTINGS: Final = (
    "ctx",
    "numerics",
    "num_threads",
    "experts_per_token",
    "engine_bin",
    "ram_gb",
    "cap",
    "auto_tier",
)


async def named_server(
    settings: ResolvedSettings, url: str, tell: Callable[[str], None]
) -> UpstreamBackend:
    """Return an opened backend on the server that was named.

    Raises:
        ServerUnreachable: it does not answer.
        UsageError: options concern an engine, or another model.
    """
    backend = await attached_backend(settings, url, tell)
    assert backend is not None, "a server that was named is used or the reason is raised"
    return backend


async def attached_backend(
    settings: ResolvedSettings, url: str | None, tell: Callable[[str], None]
) -> UpstreamBackend | None:
    """Return an opened backend on a server, or None if an engine of our own is wanted.

    Args:
        settings: Effective settings of the command.
        url: The server that was named, or None.
        tell: Called with one line where the reason is worth knowing.

    Raises:
        ServerUnreachable: the named server does not answer.
        UsageError: options concern an engine, or another model, and a server was named.
    """
    concerned = _engine_options(settings, flags_only=url is not None)
    if url is not None and concerned:
        raise UsageError(
            f"{concerned[0]} concerns an engine of its own and not the server at {url}",
            hint=f"leave out {concerned[0]} or --attach",
        )
    if url is None and concerned:
        return None
    backend = UpstreamBackend(url or USUAL_URL, settings.text("api_key"))
    try:
        await backend.open()
        if not _serves_wanted(backend, settings, tell, is_named=url is not None):
            await backend.close()
            return None
    except (ServerUnreachable, ServerRefused) as error:
        await backend.close()
        if url is not None:
            raise
        if isinstance(error, ServerRefused):
            tell(f"the server at {USUAL_URL} refuses ({error.message}); starting an engine")
        return None
    except BaseException:
        await backend.close()
        raise
    return backend


def with_servers_limit(
    settings: ResolvedSettings, backend: UpstreamBackend, generation: Generation
) -> Generation:
    """Return how to generate there: other engines refuse a limit beyond their context.

    Ours takes as much of the usual limit as there is room for, so that it is named to it; others
    have limits of their own for an answer that has none. What the user named stays.
    """
    if settings.is_given("max_tokens") or backend.has_our_engine:
        return generation
    options = replace(generation.options, max_tokens=RequestOptions().max_tokens)
    return replace(generation, options=options)


def _engine_options(settings: ResolvedSettings, *, flags_only: bool) -> list[str]:
    """Return what was set and concerns an engine only."""
    return [
        settings[name].origin.name
        for name in _ENGINE_SETTINGS
        if settings.is_given(name)
        and (not flags_only or settings[name].origin.kind is OriginKind.FLAG)
    ]


def _serves_wanted(
    backend: UpstreamBackend,
    settings: ResolvedSettings,
    tell: Callable[[str], None],
    *,
    is_named: bool,
) -> bool:
    """Whether the server serves the wanted model; says so if not.

    Raises:
        UsageError: it does not, and it was named along with the model.
    """
    if not is_named and not backend.is_ours:
        return False
    wanted = settings.text("model")
    if wanted is None:
        return True
    if (name := _name_of(wanted)) in backend.names:
        if not backend.is_ours:  # whose further names mean the same model
            backend.use(name)
        return True
    served = " = ".join(backend.names)
    if not is_named:
        tell(
            f"the server at {backend.url} serves {served}, not {_name_of(wanted)}: starting an"
            f" engine; `--attach {backend.url}` without --model talks to the server"
        )
        return False
    if settings["model"].origin.kind is OriginKind.FLAG:
        raise UsageError(
            f"the server at {backend.url} serves {served}, not {wanted}",
            hint="leave out --model, or --attach",
        )
    return True  # a variable names the usual model; the server was named for this time


def _name_of(wanted: str) -> str:
    try:
        return locate_model(wanted)[1]
    except ColibriError:  # not here; a server may have it under this name
        return wanted
