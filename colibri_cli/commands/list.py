"""`coli list`: the models of the user's store."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.model_store.store import StoredModel

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ListOptions(JsonOptions, OutputOptions):
    """Options of `coli list`."""


@takes(ListOptions)
def command(options: ListOptions) -> None:
    """List the models there are."""
    prepare(options, "list")
    from colibri_cli.model_store.store import list_entries

    entries = list_entries()
    models = [model for model in entries if model.path.exists()]
    for model in entries:
        if model not in models:
            say(f"coli: the files of {model.name} are not at {model.path}")
    if options.json:
        rows = [{**asdict(model), "path": str(model.path)} for model in models]
        body = {"schema_version": _SCHEMA_VERSION, "models": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not models:
        say("no models yet; `coli pull demo` fetches a small one")
        return
    print_models(models)


def print_models(models: "Sequence[StoredModel]") -> None:
    """Print the table of models."""
    from colibri_cli.console import print_table

    columns = [("name", False), ("family", False), ("size", True), ("experts", True)]
    print_table(
        [*columns, ("path", False)],
        [
            (
                model.name,
                model.family,
                _size(model.num_bytes),
                "-" if not model.num_experts else str(model.num_experts),
                str(model.path),
            )
            for model in models
        ],
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
