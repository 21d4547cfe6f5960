"""Models that a plugin fetches: it fills a folder, we look at it and keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli.console import byte_meters
from colibri_cli.errors import PullError
from colibri_cli.model_store.inspection import inspect_model
from colibri_cli.model_store.store import (
    StoredModel,
    find_model,
    new_directory,
    pull_lock,
    write_manifest,
)
from colibri_protocol.settings import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.plugin_types import ModelSource


def pull_from_plugin(source: ModelSource, spec: str, name: str) -> StoredModel:
    """Fetch a model and add it to the store.

    Args:
        source: The plugin's.
        spec: `SCHEME:WHAT`.
        name: Name in the store; free.

    Raises:
        PullError: what it fetched is no model, or none the engine knows.
        PluginError: it failed.
    """
    with pull_lock(name):
        with new_directory(name) as directory:
            with byte_meters() as meters:
                what = spec.partition(":")[2]
                source(what, directory, lambda k, done, total: meters.update(k, k, done, total))
            write_manifest(directory, _described(directory, spec, name))
        model = find_model(name)
    assert model is not None
    return model


def _described(directory: Path, spec: str, name: str) -> StoredModel:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    ggufs = [path for path in files if path.suffix == ".gguf"]
    has_config = (directory / "config.json").is_file()
    target = str(ggufs[0].relative_to(directory)) if ggufs and not has_config else "."
    found = inspect_model(directory / target, resolve({}, {}, {}))
    if "config" not in found.stages:
        raise PullError(
            f"what {spec} brought cannot be loaded: {found.why_not('config')}",
            hint="tell the plugin's author",
        )
    return StoredModel(
        name=name,
        family=str(found.get("config", "model_type")),
        target=target,
        source=spec,
        num_bytes=sum(path.stat().st_size for path in files),
        num_experts=found.get("config", "num_experts"),
    )
