"""From what the user asks for (`demo`, `smollm2`, `hf:ORG/NAME`) to a model in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import UsageError
from colibri_cli.model_store.store import MODEL_NAME, find_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.model_store.store import StoredModel

STARTERS: Final = ("demo", "smollm2")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One `coli pull`.

    Args:
        spec: What to fetch.
        name: Name in the store; only for `hf:`.
        revision: Revision; only for `hf:`.
        include: File patterns; only for `hf:`.
        again: Fetch or build even if the model is here.
    """

    spec: str
    name: str | None = None
    revision: str | None = None
    include: tuple[str, ...] = ()
    again: bool = False


def pull_model(request: PullRequest, confirm: Callable[[int], None]) -> StoredModel:
    """Return the model, fetching it if it is not in the store yet.

    Args:
        request: What is wanted.
        confirm: Called with the bytes of a download from the hub; raises to stop it.

    Raises:
        UsageError: nothing is known under that name, or an option does not apply.
        PullError: it could not be fetched.
    """
    if request.spec.startswith("hf:"):
        return _pull_hub(request, confirm)
    if request.spec not in STARTERS:
        return _pull_elsewhere(request)
    if request.name or request.revision or request.include:
        raise UsageError(
            "--name, --revision and --include are only for hf:ORG/NAME", hint="leave them out"
        )
    present = find_model(request.spec)
    if present is not None and not request.again:
        return present
    from colibri_cli.model_store.starters import pull_demo, pull_smollm2

    return pull_demo() if request.spec == "demo" else pull_smollm2()


def _pull_hub(request: PullRequest, confirm: Callable[[int], None]) -> StoredModel:
    from colibri_cli.model_store.hugging_face import HubRequest, parse_hub_spec, pull_from_hub

    repository, name = parse_hub_spec(request.spec, request.name)
    if name in STARTERS:
        raise UsageError(f"{name!r} is the name of a built-in model", hint="choose one with --name")
    present = find_model(name)
    if present is not None and not request.again:
        return present
    return pull_from_hub(HubRequest(repository, name, request.revision, request.include), confirm)


def _pull_elsewhere(request: PullRequest) -> StoredModel:
    """Let a plugin fetch a model, and look at what it brought."""
    from colibri_cli.plugin_parts import model_sources

    scheme, colon, what = request.spec.partition(":")
    sources = model_sources()
    if not colon or scheme not in sources:
        schemes = "".join(f", {name}:WHAT" for name in sources)
        raise UsageError(
            f"do not know how to fetch {request.spec!r}",
            hint=f"known: {', '.join(STARTERS)}, hf:ORG/NAME for models of the hub{schemes}",
        )
    if request.revision or request.include:
        raise UsageError("--revision and --include are only for hf:ORG/NAME", hint="leave them out")
    from colibri_cli.model_store.plugin_source import pull_from_plugin

    name = request.name or what.rstrip("/").rpartition("/")[2]
    if name in STARTERS or not MODEL_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a model", hint="choose one with --name")
    present = find_model(name)
    if present is not None and not request.again:
        return present
    return pull_from_plugin(sources[scheme], request.spec, name)
