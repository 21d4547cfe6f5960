"""`coli pull`: fetch a model into the user's store."""

import json
import shutil
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from colibri_cli.errors import PullError, UsageError
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

_ASK_ABOVE_BYTES = 20_000_000_000
_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PullOptions(JsonOptions, OutputOptions):
    """Options of `coli pull`."""

    spec: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="`demo`, `smollm2`, or `hf:ORG/NAME` from the hub."),
    ]
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name to keep it under (hf: only).", show_default=False),
    ] = None
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="Branch, tag or commit (hf: only).", show_default=False),
    ] = None
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Files to fetch (hf: only); repeatable."),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Fetch it even if it is here.", metavar="")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before large downloads.", metavar="")
    ] = False


@takes(PullOptions)
def command(options: PullOptions) -> None:
    """Fetch a model: demo, smollm2, or hf:ORG/NAME."""
    prepare(options, "pull")
    from colibri_cli.model_store.pulling import PullRequest, pull_model

    request = PullRequest(
        spec=options.spec,
        name=options.name,
        revision=options.revision,
        include=tuple(options.include or ()),
        again=options.again,
    )
    model = pull_model(request, lambda num_bytes: _confirm(num_bytes, is_sure=options.yes))
    if options.json:
        body = {
            "schema_version": _SCHEMA_VERSION,
            "name": model.name,
            "family": model.family,
            "path": str(model.path),
            "bytes": model.num_bytes,
        }
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(f"{model.name}: {model.path}\n")


def _confirm(num_bytes: int, *, is_sure: bool) -> None:
    from colibri_cli import paths

    root = paths.data_dir()
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if num_bytes > free:
        raise PullError(
            f"{num_bytes / 1e9:.1f} GB are needed, {existing} has {free / 1e9:.1f} GB free",
            hint="free some space, or point XDG_DATA_HOME at another disk",
        )
    say(f"{num_bytes / 1e9:.1f} GB to fetch, {free / 1e9:.1f} GB free")
    if is_sure or num_bytes <= _ASK_ABOVE_BYTES:
        return
    if not sys.stdin.isatty():
        raise UsageError("this download is large; say --yes to start it without being asked")
    if not typer.confirm("fetch it?", err=True):
        raise typer.Exit(1)
