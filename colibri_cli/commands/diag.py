"""`coli diag`: the regression harness: ask a model in phases, report, compare with a baseline."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli import completing
from colibri_cli.errors import EXIT_FAILED, DiagError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, setting, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say, teller
from colibri_protocol.settings import ResolvedSettings

if TYPE_CHECKING:
    from colibri_cli.diag.report import Document

_SLOTS = 4  # answers that share steps in the phase `diagnostic`
_PANEL = "Report"


@dataclass(frozen=True, kw_only=True)
class DiagOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli diag`."""

    phases: Annotated[
        str,
        typer.Option(
            "--phases",
            metavar="NAME,NAME",
            help="Phases to run.",
            rich_help_panel=_PANEL,
            autocompletion=completing.phase_names,
        ),
    ] = "system,smoke,diagnostic,quality,throughput"
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for report.json and report.md.",
            rich_help_panel=_PANEL,
        ),
    ] = "coli-diag"
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="An earlier report.json; a figure that is worse ends with exit code 1.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance",
            metavar="FIGURE=X",
            help="How far a figure may move; repeat for several. docs/diag.md lists them.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach",
            metavar="URL",
            help="Ask this running server over HTTP instead of an engine.",
            show_default=False,
        ),
    ] = None
    kv_slots: Annotated[str | None, setting("kv_slots", "Model and engine")] = None


@takes(DiagOptions)
def command(options: DiagOptions) -> None:
    """Check a model and its engine, and find what got worse."""
    settings = prepare(options, "diag")
    from colibri_cli.diag.comparing import check_comparable, compare, tolerances
    from colibri_cli.diag.report import read_report, write_reports
    from colibri_cli.diag.running import phases_of
    from colibri_cli.diag.text import markdown
    from colibri_cli.runtime import run_async

    phases = phases_of(options.phases)
    allowed = tolerances(options.tolerance or [])
    before = None if options.baseline is None else read_report(Path(options.baseline))
    document = run_async(_diagnose(options, settings, phases))
    if before is not None and document["phases"]["system"]["state"] == "done":
        check_comparable(document, before, str(options.baseline))
        document["comparison"] = compare(document, before, allowed)
        if document["comparison"]["worse"] and document["status"] == "ok":
            document["status"] = "worse"
    try:
        write_reports(Path(options.out), document, markdown(document))
    except DiagError:
        _show(options, document)  # minutes of measuring are not lost with a disk
        raise
    _show(options, document)
    if document["status"] != "ok":
        raise typer.Exit(EXIT_FAILED)


async def _diagnose(
    options: DiagOptions, settings: ResolvedSettings, phases: tuple[str, ...]
) -> "Document":
    from colibri_cli.diag.running import run_phases

    tell = teller(is_quiet=options.quiet)
    if options.attach is not None:
        from colibri_cli.backends.attaching import named_server

        server = await named_server(settings, options.attach, tell)
        report = await run_phases(server, phases, tell, server=server.url)
        return report.document()
    from colibri_cli.backends.opening import native_backend

    extra = {"kv_save": 0, "usage_save": 0}  # two runs of a comparison start alike
    if not settings.is_given("kv_slots"):
        extra["kv_slots"] = _SLOTS
    report = await run_phases(native_backend(settings, extra=extra), phases, tell)
    return report.document()


def _show(options: DiagOptions, document: "Document") -> None:
    if options.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        from colibri_cli.console import print_table
        from colibri_cli.diag.text import COLUMNS, COMPARED_COLUMNS, table_rows

        columns = COLUMNS if document["comparison"] is None else COMPARED_COLUMNS
        print_table(columns, table_rows(document))
    sys.stdout.flush()
    lines = [f"problem: {problem}" for problem in document["problems"]]
    worse = document["comparison"]["worse"] if document["comparison"] else []
    if worse:
        lines.append(f"worse than the baseline: {', '.join(worse)}")
    if not options.quiet:
        if document["comparison"] and not worse:
            lines.append("nothing is worse than the baseline")
        lines.append(f"report: {Path(options.out) / 'report.md'}")
    if lines:
        say("\n".join(lines))
