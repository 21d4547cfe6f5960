"""`coli report`: one archive for a bug report, without secrets and without conversations."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.errors import StoreError, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, path_of, setting, takes
from colibri_cli.settings import effective_settings, prepare
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_cli.bug_report.archive import Packed

_DIAG = "coli-diag"
_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ReportOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli report`."""

    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE",
            help="The archive, a new file. Default: coli-report-DATE-TIME.zip here.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    log_file: Annotated[str | None, setting("log_file", "Sources")] = None
    diag: Annotated[
        str | None,
        typer.Option(
            "--diag", metavar="DIR", help=f"Folder of `coli diag`. Default: {_DIAG} here.",
            show_default=False, rich_help_panel="Sources",
        ),
    ] = None  # fmt: skip
    with_log: Annotated[
        bool,
        typer.Option(
            "--with-log", metavar="",
            help="Also the last conversation that was kept, and prompts and answers in the log.",
            rich_help_panel="Sources",
        ),
    ] = False  # fmt: skip
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be in it.", metavar="")
    ] = False


@takes(ReportOptions)
def command(options: ReportOptions) -> None:
    """Pack what a bug report needs into one archive, without secrets."""
    settings = prepare(options, "report")
    from colibri_cli.bug_report.archive import new_name, pack, write_archive
    from colibri_cli.bug_report.contents import Sources, check_named, parts_of
    from colibri_cli.bug_report.masking import Masker
    from colibri_cli.bug_report.secrets import known_secrets

    out = Path(new_name()) if options.out is None else path_of("--out", options.out)
    if not options.dry_run and (out.exists() or not out.parent.is_dir()):
        raise UsageError(f"--out: {out} is no new file in a folder", hint="name another one")
    log: Path | None
    if options.log_file is not None:
        log = check_named("--log-file", path_of("--log-file", options.log_file))
    else:  # that of a server, whose settings may stand in a table of their own
        named = effective_settings(options.config, "serve", options.profile).text("log_file")
        log = None if named is None else Path(named).expanduser()
    diag = Path(_DIAG)
    if options.diag is not None:
        diag = check_named("--diag", path_of("--diag", options.diag))
    sources = Sources(settings=settings, log=log, diag=diag, has_conversations=options.with_log)
    masker = Masker(known_secrets(settings, options.config), _home())
    packed = pack(parts_of(sources), masker)
    if not options.dry_run:
        try:
            write_archive(out, packed)
        except OSError as error:
            raise StoreError(
                f"--out: {out} cannot be written ({error.strerror})", hint="name another file"
            ) from error
    _show(options, packed, None if options.dry_run else out.absolute())


def _show(options: ReportOptions, packed: "list[Packed]", out: Path | None) -> None:
    """Tell where the archive is and what is in it; without one, what would be."""
    if options.json:
        parts = [{"name": p.name, "about": p.about, "is_absent": p.text is None} for p in packed]
        place = None if out is None else str(out)
        body = {"schema_version": _SCHEMA_VERSION, "path": place, "parts": parts}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    width = max(len(part.name) for part in packed)
    lines = [f"{part.name:<{width}}  {part.about}" for part in packed]
    if out is None:
        from colibri_cli.console import print_prose

        print_prose(lines)
        return
    if not options.quiet:
        say("\n".join(lines))
        say("keys, passwords and your home directory were taken out; look through it all the same")
    sys.stdout.write(f"{out}\n")


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # the system knows no home of ours
        return None
