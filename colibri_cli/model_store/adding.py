"""Giving a model that lies elsewhere a name in the store, and taking names and models out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli import paths
from colibri_cli.errors import StoreError, UsageError
from colibri_cli.model_store.store import (
    MODEL_NAME,
    StoredModel,
    find_entry,
    new_directory,
    pull_lock,
    remove_tree,
    write_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.model_store.inspection import Inspection

SOURCE: Final = "added"


def add_model(name: str, path: Path, found: Inspection) -> StoredModel:
    """Enter a model that lies outside of the store; its files stay where they are.

    Args:
        name: Name to load it by; a name that was added before is moved to the new place.
        path: Directory or file, absolute.
        found: What the engine saw there.

    Raises:
        UsageError: the name cannot be one, or belongs to a model that was pulled.
        StoreError: there is no model that loads, or the store cannot be written.
    """
    if not MODEL_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a model",
            hint="letters, digits, dots, dashes and underscores, at most 96",
        )
    present = find_entry(name)
    if present is not None and present.is_managed:
        raise UsageError(
            f"there is a model {name} that was pulled",
            hint=f"choose another name, or coli rm {name}",
        )
    for stage in ("files", "config"):
        if stage not in found.stages:
            raise StoreError(
                f"{path} is no model that can be run: {found.why_not(stage)}",
                hint=f"`coli doctor --model {path}` looks at all of it",
            )
    model = StoredModel(
        name=name,
        family=found.get("config", "model_type"),
        target=str(path),
        source=SOURCE,
        num_bytes=found.get("files", "bytes"),
        num_experts=found.get("config", "num_experts"),
    )
    with pull_lock(name), new_directory(name) as directory:
        write_manifest(directory, model)
    return model


def remove_model(model: StoredModel) -> None:
    """Take a model out of the store: its files if they are the store's own, else only its name.

    Raises:
        StoreError: it is in use, or cannot be removed.
    """
    user = _user_of(model)
    if user is not None:
        raise StoreError(f"{model.name} is in use by {user}", hint="end that first: coli stop")
    directory = paths.models_dir() / model.name
    with pull_lock(model.name):
        aside = directory.with_name(f".{model.name}.removed.new")
        try:
            directory.rename(aside)  # whole or not at all, whatever happens during the rest
        except OSError as error:
            raise StoreError(f"cannot remove {directory}: {error.strerror}") from error
        remove_tree(aside)


def _user_of(model: StoredModel) -> str | None:
    """Return who runs a model now, as far as the system tells."""
    from colibri_cli.servers import engines_of, running_servers

    for server in running_servers():
        if server.model == model.name:
            return f"the server at {server.url}"
    pid = next(engines_of(model.path), None)
    return None if pid is None else f"the engine process {pid}"
