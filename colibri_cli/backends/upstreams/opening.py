"""From settings to the backend of a server: one that runs already, or a `vllm serve` of ours."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Final

import httpx

from colibri_cli.backends.upstreams.kinds import KINDS
from colibri_cli.backends.upstreams.served import ServedUpstream, UpstreamTarget
from colibri_cli.backends.upstreams.vllm import ServedVllm, VllmLaunch
from colibri_cli.errors import ModelNotGiven, UsageError
from colibri_cli.model_store.store import locate_model
from colibri_protocol.errors import ColibriError
from colibri_protocol.setting import Scope
from colibri_protocol.settings import OriginKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.base import ServableBackend
    from colibri_cli.supervisor.lifecycle import EngineState
    from colibri_protocol.settings import ResolvedSettings

VLLM_ENGINE: Final = "vllm"
# Settings of both sides that shape requests or the server, whoever answers.
_EVERYWHERE: Final = {"max_tokens", "temperature", "top_p", "think", "debug"}
_OF_VLLM: Final = ("tensor_parallel", "pipeline_parallel", "nodes", "engine_args")
_OF_ENGINES: Final = ("engine_bin", "auto_tier", "cap", "tool_salvage")
_OF_UPSTREAMS: Final = ("upstream_kind", "concurrency")


def is_served_elsewhere(settings: ResolvedSettings) -> bool:
    """Return whether another server than our engine is to answer."""
    return settings.text("upstream") is not None or _is_vllm(settings)


def check_fit(settings: ResolvedSettings) -> None:
    """Check that the flags concern what is going to answer.

    Raises:
        UsageError: naming the first that does not.
    """
    upstream = settings.text("upstream")
    if upstream is not None and _is_vllm(settings):
        raise UsageError("--upstream and --engine vllm exclude each other", hint="leave one out")
    unfit: list[str] = []
    if upstream is not None:
        unfit += [*_engine_settings(settings), *_OF_ENGINES, *_OF_VLLM]
        whom = "--upstream"
    elif _is_vllm(settings):
        unfit += [
            n for n in (*_engine_settings(settings), *_OF_ENGINES) if n not in {"ctx", "engine_bin"}
        ]
        whom = "--engine vllm"
    else:
        unfit += [*_OF_UPSTREAMS, *_OF_VLLM]
        whom = "our own engine"
    for name in unfit:
        origin = settings[name].origin
        if origin.kind is OriginKind.FLAG:
            raise UsageError(
                f"{origin.name} means nothing to {whom}", hint=f"leave out {origin.name}"
            )


def served_upstream(
    settings: ResolvedSettings, on_state: Callable[[EngineState], None]
) -> ServableBackend:
    """Return the backend of the server the settings name; it is not opened yet.

    Raises:
        UsageError: an address or an argument that cannot be meant.
        ModelNotGiven: vLLM is to be started without one.
    """
    if _is_vllm(settings):
        return ServedVllm(vllm_launch(settings), on_state)
    kind = settings.text("upstream_kind")
    target = UpstreamTarget(
        url=checked_url(settings.text("upstream") or ""),
        api_key=settings.text("upstream_api_key"),
        kind=KINDS.get(kind or ""),
        model=settings.text("model"),
    )
    return ServedUpstream(target, on_state)


def checked_url(text: str) -> str:
    """Return the address of a server.

    Raises:
        UsageError: it is none, or holds a key.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(
            f"--upstream: {text!r} is not the URL of a server",
            hint="write http://HOST:PORT or https://HOST",
        )
    if url.userinfo or url.query:
        raise UsageError(
            "--upstream takes no user, password or query, which would end up in logs",
            hint="put a key into COLI_UPSTREAM_API_KEY",
        )
    return text


def vllm_launch(settings: ResolvedSettings) -> VllmLaunch:
    """Return how `vllm serve` is started.

    Raises:
        ModelNotGiven: no model was named.
        UsageError: vLLM is not there, or the arguments do not fit together.
    """
    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    named = settings.text("engine_bin") or "vllm"
    program = shutil.which(named)
    if program is None:
        raise UsageError(
            f"there is no program {named!r} to start vLLM with",
            hint="install it (`pip install vllm`), or name it with --engine-bin",
        )
    try:
        path, name = locate_model(wanted)
        model = str(path)
    except ColibriError:  # not here: vLLM knows names on the hub of its own
        model = name = wanted
    return VllmLaunch(program, model, name, (*_parallel(settings), *_further(settings)))


def _parallel(settings: ResolvedSettings) -> list[str]:
    tensor = settings.integer("tensor_parallel") or 1
    pipeline = settings.integer("pipeline_parallel") or 1
    nodes = settings.integer("nodes") or 1
    if tensor * pipeline % nodes:
        raise UsageError(
            f"--nodes {nodes}: {tensor} x {pipeline} GPUs cannot be spread evenly over them",
            hint="--tensor-parallel times --pipeline-parallel must be a multiple of --nodes",
        )
    arguments = []
    if tensor > 1:
        arguments += ["--tensor-parallel-size", str(tensor)]
    if pipeline > 1:
        arguments += ["--pipeline-parallel-size", str(pipeline)]
    if nodes > 1:
        arguments += ["--distributed-executor-backend", "ray"]
    return arguments


def _further(settings: ResolvedSettings) -> list[str]:
    arguments = ["--max-model-len", str(ctx)] if (ctx := settings.integer("ctx")) else []
    text = settings.text("engine_args")
    if text is None:
        return arguments
    try:
        return [*arguments, *shlex.split(text)]
    except ValueError as error:
        raise UsageError(
            f"--engine-args: {text!r} is not quoted as in a shell ({error})",
            hint="close the quotation mark",
        ) from error


def _is_vllm(settings: ResolvedSettings) -> bool:
    return settings.text("engine_kind") == VLLM_ENGINE


def _engine_settings(settings: ResolvedSettings) -> list[str]:
    return [
        name
        for name in settings
        if settings[name].setting.scope is Scope.BOTH and name not in _EVERYWHERE
    ]
