"""`coli rm`: remove a model of the store; of one that was added, only its name."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.errors import EXIT_FAILED, ModelNotFound, UsageError
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_cli.model_store.store import StoredModel

_SCHEMA_VERSION = 1


def _names(incomplete: str) -> list[str]:
    from colibri_cli.model_store.store import list_entries

    return [model.name for model in list_entries() if model.name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(JsonOptions, OutputOptions):
    """Options of `coli rm`."""

    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A model of `coli list`.", autocompletion=_names),
    ]
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before files are removed.", metavar="")
    ] = False


@takes(RemoveOptions)
def command(options: RemoveOptions) -> None:
    """Remove a model, or forget one that was added."""
    prepare(options, "rm")
    from colibri_cli.model_store.adding import remove_model
    from colibri_cli.model_store.store import find_entry

    model = find_entry(options.name)
    if model is None:
        raise ModelNotFound(
            f"there is no model {options.name!r} to remove", hint="`coli list` names them"
        )
    if model.is_managed and not options.yes:
        _confirm(model)
    remove_model(model)
    freed = model.num_bytes if model.is_managed else 0
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "name": model.name, "path": str(model.path)}
        body |= {"files_removed": model.is_managed, "bytes": freed}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    elif model.is_managed:
        sys.stdout.write(f"removed {model.name}, {freed / 1e9:.1f} GB\n")
    else:
        sys.stdout.write(f"forgot {model.name}; its files stay at {model.path}\n")


def _confirm(model: "StoredModel") -> None:
    from colibri_cli.model_store.facts import sidecars

    folder = model.path if model.path.is_dir() else model.path.parent
    left = ", ".join(sidecar["name"] for sidecar in sidecars(folder)) if folder.is_dir() else ""
    beside = f", with {left}" if left else ""
    what = f"{model.name}, {model.num_bytes / 1e9:.1f} GB at {model.path}{beside}"
    if not sys.stdin.isatty():
        raise UsageError(f"this would remove {what}", hint="say --yes to do it without being asked")
    say(f"this removes {what}")
    if not typer.confirm("remove it?", err=True):
        raise typer.Exit(EXIT_FAILED)
