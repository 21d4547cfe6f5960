"""`coli build`: which kernels this installation has, whether they are right, building them anew."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.errors import EXIT_FAILED, UsageError
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare

if TYPE_CHECKING:
    from colibri_cli.native_build import Kernels, Variant

_SCHEMA_VERSION = 1
_SHOWN = 3  # names of operations that differ


@dataclass(frozen=True, kw_only=True)
class BuildOptions(JsonOptions, OutputOptions):
    """Options of `coli build`."""

    native: Annotated[
        bool,
        typer.Option(
            "--native",
            help="Build them anew with this machine's compiler first; from a source checkout.",
            metavar="",
        ),
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            max=1024,
            help="Compilers that run at once, with --native. Default: left to the build.",
            show_default=False,
        ),
    ] = None


@takes(BuildOptions)
def command(options: BuildOptions) -> None:
    """Show the kernels there are, test them, or build them anew."""
    prepare(options, "build")
    if options.jobs is not None and not options.native:
        raise UsageError("--jobs says how --native builds, and nothing is built without it")
    from colibri_cli import native_build

    if options.native:
        _rebuild(options)
    found = native_build.examine()
    if options.json:
        body = {
            "schema_version": _SCHEMA_VERSION, "cpu": found.cpu, "isa": found.active,
            "ok": found.are_right, "variants": [one.document() for one in found.variants],
        }  # fmt: skip
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        show(found)
    if not found.are_right:
        raise typer.Exit(EXIT_FAILED)


def _rebuild(options: BuildOptions) -> None:
    from colibri_cli import native_build
    from colibri_cli.console import spinner

    root = native_build.checkout()
    if options.quiet:
        native_build.rebuild(root, options.jobs)
        return
    with spinner(f"building the kernels in {root}"):
        native_build.rebuild(root, options.jobs)


def show(found: "Kernels") -> None:
    """Print a row for each variant, and which one is used."""
    from colibri_cli.console import print_prose, print_table

    columns = [("kernels", False), ("here", False), ("self-test", False)]
    rows = [(one.name, _here(one, found), _outcome(one)) for one in found.variants]
    print_table(columns, rows)
    wrong = [one.name for one in found.variants if one.is_right is False]
    said = f"wrong: {', '.join(wrong)}" if wrong else f"right; {found.active} is used"
    print_prose([f"processor: {found.cpu}", f"result: {said}"])


def _here(variant: "Variant", found: "Kernels") -> str:
    if variant.name == found.active:
        return "used"
    return "runs" if variant.runs else "not on this processor"


def _outcome(variant: "Variant") -> str:
    if not variant.runs:
        return "-"
    if variant.problem is not None:
        return f"FAILED: {variant.problem}"
    if variant.differing:
        more = len(variant.differing) - _SHOWN
        names = "; ".join(variant.differing[:_SHOWN])
        return f"FAILED: {names}" + (f" and {more} more" if more > 0 else "")
    return f"{variant.compared} of {variant.compared} to the bit"
