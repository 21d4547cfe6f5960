"""`coli add`: a name for a model that lies anywhere."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from colibri_cli.errors import ModelNotFound
from colibri_cli.options import JsonOptions, OutputOptions, path_of, takes
from colibri_cli.settings import prepare

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class AddOptions(JsonOptions, OutputOptions):
    """Options of `coli add`."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
    path: Annotated[str, typer.Argument(metavar="PATH", help="A model directory, or a GGUF file.")]


@takes(AddOptions)
def command(options: AddOptions) -> None:
    """Give a model directory on any drive a name."""
    settings = prepare(options, "add")
    path = path_of("PATH", options.path)
    try:
        is_there = path.exists()
    except OSError:  # longer than any name
        is_there = False
    if not is_there:
        raise ModelNotFound(f"there is nothing at {options.path!r}", hint="name a model directory")
    from colibri_cli.model_store.adding import add_model
    from colibri_cli.model_store.inspection import inspect_model

    path = path.resolve()
    model = add_model(options.name, path, inspect_model(path, settings))
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "name": model.name, "family": model.family}
        body |= {"path": str(model.path), "bytes": model.num_bytes}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(f"{model.name}: {model.path}\n")
