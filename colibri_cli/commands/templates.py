"""`coli templates`: prompts with places for words, kept under a name for `coli run -t`."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from colibri_cli import completing
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

_SCHEMA_VERSION = 1

app = typer.Typer(
    name="templates",
    help="List, show, set and remove prompt templates for `coli run -t`.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The template.", autocompletion=completing.template_names),
]


@dataclass(frozen=True, kw_only=True)
class ListOptions(JsonOptions, OutputOptions):
    """Options of `coli templates list`."""


@dataclass(frozen=True, kw_only=True)
class NameOptions(JsonOptions, OutputOptions):
    """Options of `coli templates show`."""

    name: _Name


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(OutputOptions):
    """Options of `coli templates rm` and `path`."""

    name: _Name


@dataclass(frozen=True, kw_only=True)
class SetOptions(OutputOptions):
    """Options of `coli templates set`."""

    name: _Name
    prompt: Annotated[
        str, typer.Argument(metavar="[PROMPT]", help="Text with places such as $input.")
    ] = "$input"
    system: Annotated[
        str | None,
        typer.Option("--system", "-s", metavar="TEXT", help="System text.", show_default=False),
    ] = None
    default: Annotated[
        list[str] | None,
        typer.Option(
            "--default", metavar="NAME=TEXT", help="Word for a place nobody fills; repeat.",
            show_default=False,
        ),
    ] = None  # fmt: skip


@app.command("list")
@takes(ListOptions)
def list_command(options: ListOptions) -> None:
    """List templates with their places."""
    prepare(options, "templates")
    from colibri_cli.prompt_templates import load_template, template_names

    found = [load_template(name) for name in template_names()]
    if options.json:
        rows = [{"name": template.name, "places": sorted(template.places)} for template in found]
        body = {"schema_version": _SCHEMA_VERSION, "templates": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not found:
        say("no templates yet; `coli templates set NAME` makes one")
        return
    from colibri_cli.console import print_table

    print_table(
        [("name", False), ("places", False), ("prompt", False)],
        [(t.name, ", ".join(sorted(t.places)), " ".join(t.prompt.split())) for t in found],
    )


@app.command("show")
@takes(NameOptions)
def show_command(options: NameOptions) -> None:
    """Print one template."""
    prepare(options, "templates")
    from colibri_cli.prompt_templates import load_template, template_path

    template = load_template(options.name)
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, **asdict(template)}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(template_path(options.name).read_text(encoding="utf-8"))


@app.command("set")
@takes(SetOptions)
def set_command(options: SetOptions) -> None:
    """Make a template, or replace it."""
    prepare(options, "templates")
    from colibri_cli.prompt_templates import PromptTemplate, pairs, save_template

    defaults = pairs("--default", options.default or [])
    path = save_template(PromptTemplate(options.name, options.prompt, options.system, defaults))
    if not options.quiet:
        say(f"{path}")


@app.command("path")
@takes(RemoveOptions)
def path_command(options: RemoveOptions) -> None:
    """Print the file of a template, whether it exists or not."""
    prepare(options, "templates")
    from colibri_cli.prompt_templates import template_path

    sys.stdout.write(f"{template_path(options.name)}\n")


@app.command("rm")
@takes(RemoveOptions)
def rm_command(options: RemoveOptions) -> None:
    """Remove a template."""
    prepare(options, "templates")
    from colibri_cli.prompt_templates import load_template, template_path

    load_template(options.name)
    template_path(options.name).unlink()
