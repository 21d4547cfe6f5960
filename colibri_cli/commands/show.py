"""`coli show`: everything there is to know of one model without loading it."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colibri_cli import completing
from colibri_cli.errors import ModelNotFound, ModelNotGiven, StoreError, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare

if TYPE_CHECKING:
    from colibri_cli.model_store.inspection import Inspection


@dataclass(frozen=True, kw_only=True)
class ShowOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli show`."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", help="A model, as for --model, which says the same.",
            show_default=False, autocompletion=completing.model_names,
        ),
    ] = None  # fmt: skip
    template: Annotated[
        bool, typer.Option("--template", help="Print only its chat template.", metavar="")
    ] = False
    model_config: Annotated[
        bool,
        typer.Option(
            "--model-config", help="Print only its configuration, as the engine reads it.",
            metavar="",
        ),
    ] = False  # fmt: skip


@takes(ShowOptions)
def command(options: ShowOptions) -> None:
    """Show what a model holds: files, chat template, licence."""
    if options.name is not None:
        options = replace(options, model=options.name)
    settings = prepare(options, "show")
    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    if options.template and options.model_config:
        raise UsageError("--template and --model-config contradict each other")
    from colibri_cli.model_store.facts import facts_of
    from colibri_cli.model_store.inspection import inspect_model
    from colibri_cli.model_store.store import locate_model

    path, name = locate_model(wanted)
    found = inspect_model(path, settings)
    if options.template or options.model_config:
        _print_text(options, path, found)
        return
    body = {**facts_of(path, name, found, settings), **_more(name, path, found)}
    if options.json:
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    _print(body)


def _print_text(options: ShowOptions, path: Path, found: "Inspection") -> None:
    if "texts" not in found.stages:
        raise StoreError(f"{path} cannot be read: {found.why_not('texts')}")
    if options.model_config:
        text = json.dumps(found.get("texts", "config"), indent=2, ensure_ascii=False, default=str)
    else:
        text = found.get("texts", "chat_template")
        if text is None:
            raise ModelNotFound(
                f"{path} has no chat template", hint="`coli show` tells what it has"
            )
    if options.json:
        key = "config" if options.model_config else "chat_template"
        value = found.get("texts", key)
        sys.stdout.write(json.dumps({"schema_version": 1, key: value}, ensure_ascii=False) + "\n")
        return
    from colibri_cli.terminal.answer_text import visible

    text = visible(text) if sys.stdout.isatty() else text
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _more(name: str, path: Path, found: "Inspection") -> dict[str, Any]:
    """Return what `coli info` does not say: origin, licence, the template's length."""
    from colibri_cli.model_store.store import find_entry

    entry = find_entry(name)
    if entry is not None and entry.path.resolve() != path.resolve():
        entry = None
    folder = path if path.is_dir() else path.parent
    licence = entry.license if entry is not None else ""
    if not licence:
        files = sorted(file.name for file in folder.glob("LICEN[CS]E*"))
        licence = files[0] if files else ""
    return {
        "source": entry.source if entry is not None else None,
        "license": licence or None,
        "chat_template": found.get("texts", "chat_template"),
    }


def _print(body: dict[str, Any]) -> None:
    from colibri_cli.console import print_facts
    from colibri_cli.model_store.facts import fact_rows
    from colibri_cli.terminal.sizes import size

    rows = fact_rows(body)
    for own in ("memory", "engine", "processor"):  # of this machine, not of the model
        rows.pop(own, None)
    template = body["chat_template"]
    if template is not None:
        rows["chat format"] = f"a template of {len(template):,} characters (`--template` prints it)"
    rows["source"] = body["source"] or "not in the store"
    rows["licence"] = body["license"] or "unknown"
    shown = list(rows.items())
    shown += [(file["name"], size(file["bytes"])) for file in body["files"]]
    print_facts(shown)
