"""`coli doctor`: whether a model can run on this machine, and what is in the way."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.errors import EXIT_FAILED, EXIT_USAGE
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare

if TYPE_CHECKING:
    from colibri_cli.doctor.examination import DoctorReport


_STYLES = {"pass": "good", "warn": "warn", "fail": "bad", "skip": "faint"}
_WORDS = {"ok": "usable", "warning": "usable, with warnings", "error": "not usable"}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli doctor`."""

    deep: Annotated[
        bool,
        typer.Option("--deep", help="Check numbering and index of the files, too.", metavar=""),
    ] = False


@takes(DoctorOptions)
def command(options: DoctorOptions) -> None:
    """Check a model, this machine and this installation."""
    settings = prepare(options, "doctor")
    from colibri_cli.doctor.running import examine, without_model

    wanted = settings.text("model")
    report = without_model() if wanted is None else examine(wanted, settings, is_deep=options.deep)
    _show(options, report)
    if wanted is None:
        raise typer.Exit(EXIT_USAGE)
    if report.status == "error":
        raise typer.Exit(EXIT_FAILED)


def _show(options: DoctorOptions, report: "DoctorReport") -> None:
    if options.json:
        text = json.dumps(report.document(), ensure_ascii=False, allow_nan=False)
        sys.stdout.write(f"{text}\n")
        return
    from colibri_cli.console import print_checks

    shown = [
        (result.status.value, _STYLES[result.status.value], check_id, result.summary)
        for check_id, result in report.checks
        if not options.quiet or result.status.value in {"warn", "fail"}
    ]
    if shown:
        print_checks(shown)
    sys.stdout.write(f"result: {_WORDS[report.status]}\n")
