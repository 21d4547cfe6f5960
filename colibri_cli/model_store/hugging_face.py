"""`hf:ORG/NAME`: whole repositories through `huggingface_hub`, an optional extra.

Files go into a directory that stays between attempts, so an interrupted pull goes on where it
stopped; it becomes the model's own only when everything is there.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.errors import PullError, UsageError
from colibri_cli.model_store.store import (
    MODEL_NAME,
    StoredModel,
    adopt_directory,
    pull_lock,
    write_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")
_WANTED: Final = ("*.json", "*.safetensors", "*.jinja", "tokenizer*", "LICENSE*", "README.md")
_EXPERT_KEYS: Final = ("n_routed_experts", "num_experts", "num_local_experts")
_HUB_PACKAGES: Final = frozenset({"huggingface_hub", "httpx", "httpx2", "requests", "hf_xet"})
_MAX_CONFIG_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HubRequest:
    """What to fetch from the hub.

    Args:
        repository: `ORG/NAME`.
        name: Name in the store.
        revision: Branch, tag or commit; None is the default branch.
        include: Patterns of files; empty fetches what a safetensors model needs.
    """

    repository: str
    name: str
    revision: str | None = None
    include: tuple[str, ...] = ()


def parse_hub_spec(spec: str, name: str | None) -> tuple[str, str]:
    """Return repository and store name of `hf:ORG/NAME`.

    Raises:
        UsageError: it has another form.
    """
    repository = spec.removeprefix("hf:")
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        raise UsageError(
            f"{spec!r} is not of the form hf:ORG/NAME",
            hint="copy both names from the model's page: hf:HuggingFaceTB/SmolLM2-135M-Instruct",
        )
    chosen = name or repository.partition("/")[2]
    if not MODEL_NAME.fullmatch(chosen):
        raise UsageError(f"{chosen!r} is no name for a model", hint="choose one with --name")
    return repository, chosen


def pull_from_hub(request: HubRequest, confirm: Callable[[int], None]) -> StoredModel:
    """Fetch a repository.

    Args:
        request: What to fetch.
        confirm: Called with the total bytes before anything is fetched; raises to stop.

    Raises:
        PullError: the extra is missing, or the hub refuses or cannot be reached.
    """
    hub = load_hub()
    patterns = list(request.include or _WANTED)
    with pull_lock(request.name):
        partial = paths.models_dir() / f".{request.name}.partial"
        try:
            confirm(_total_bytes(hub, request, patterns))
            partial.mkdir(parents=True, exist_ok=True)
            hub.snapshot_download(
                request.repository,
                revision=request.revision,
                allow_patterns=patterns,
                local_dir=str(partial),
            )
        except Exception as error:
            if not is_fetch_failure(error):
                raise
            raise PullError(
                f"{request.repository} could not be fetched: {first_line(error)}",
                hint="check the name and the network; gated models need `hf auth login`",
            ) from error
        model = _describe(partial, request)
        write_manifest(partial, model)
        adopt_directory(partial, request.name)
        return model


def load_hub() -> Any:  # noqa: ANN401 - an optional library without types
    """Return the module `huggingface_hub`.

    Raises:
        PullError: it is not installed.
    """
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise PullError(
            "fetching hf: models needs the optional package huggingface_hub",
            hint="install it with: python -m pip install 'colibri-cli[hf]'",
        ) from error


def is_fetch_failure(error: Exception) -> bool:
    """Whether an error is the hub's, its transport's (which differs by version) or the disk's."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or package in _HUB_PACKAGES


def _total_bytes(hub: Any, request: HubRequest, patterns: Sequence[str]) -> int:  # noqa: ANN401
    from fnmatch import fnmatch

    info = hub.HfApi().model_info(
        request.repository, revision=request.revision, files_metadata=True
    )
    wanted = [
        file for file in info.siblings if any(fnmatch(file.rfilename, glob) for glob in patterns)
    ]
    if not any(file.rfilename.endswith((".safetensors", ".gguf")) for file in wanted):
        offered = [f.rfilename for f in info.siblings if f.rfilename.endswith(".gguf")]
        raise PullError(
            f"{request.repository} has no *.safetensors files",
            hint=f"choose a GGUF file with --include, for example {offered[0]}"
            if offered
            else "it holds no weights in a format that can be loaded",
        )
    return sum(file.size or 0 for file in wanted)


def _describe(directory: Path, request: HubRequest) -> StoredModel:
    config = _read_config(directory / "config.json")
    ggufs = sorted(path.name for path in directory.glob("*.gguf"))
    experts = next((config[key] for key in _EXPERT_KEYS if isinstance(config.get(key), int)), None)
    files = [path for path in directory.rglob("*") if path.is_file() and ".cache" not in path.parts]
    return StoredModel(
        name=request.name,
        family=str(config.get("model_type", "unknown")),
        target=ggufs[0] if ggufs and not config else ".",
        source=f"hf:{request.repository}",
        num_bytes=sum(path.stat().st_size for path in files),
        num_experts=experts,
    )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def first_line(error: Exception) -> str:
    """Return what an error of the hub says in its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
