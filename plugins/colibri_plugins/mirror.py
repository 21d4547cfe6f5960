"""`coli mirror`: copies of the weight files used most, on a second disk, read beside the first."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from colibri_cli.plugin_api import (
    EXIT_USAGE,
    CheckContext,
    CheckResult,
    CheckStatus,
    ColibriError,
    JsonOptions,
    ModelNotGiven,
    OutputOptions,
    RegisterCheck,
    ResolvedSettings,
    UsageError,
    effective_settings,
    hookimpl,
    locate_model,
    path_of,
    prepare,
    progress,
    say,
    show_table,
    takes,
)
from colibri_plugins._mirror_copy import stage, verify
from colibri_plugins._mirror_plan import choose, read_usage, weight_files

_SCHEMA_VERSION = 1
_GIB = 1 << 30
_USAGE = ".coli_usage"
_EXIT_UNVERIFIED = 4

app = typer.Typer(
    help="Plan, make and check a copy of the weight files used most on a second disk.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Model = Annotated[
    str | None,
    typer.Option("--model", metavar="TEXT", help="The model. Variable: COLI_MODEL.",
                 show_default=False),
]  # fmt: skip
_Mirror = Annotated[
    str | None,
    typer.Option("--mirror", metavar="DIR", help="Folder on the other disk."
                 " Variable: COLI_MODEL_MIRROR.", show_default=False),
]  # fmt: skip
_Sources = Annotated[
    list[str] | None,
    typer.Option("--source-dir", metavar="DIR", help="Further folder with files of the model;"
                 " repeat for several.", show_default=False),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(JsonOptions, OutputOptions):
    """Options of `coli mirror verify`."""

    model: _Model = None
    mirror: _Mirror = None
    source_dir: _Sources = None

    def flags(self) -> dict[str, object]:
        """Return no settings: these are read by hand."""
        return {"debug": 1 if self.debug else None}


@dataclass(frozen=True, kw_only=True)
class PlanOptions(VerifyOptions):
    """Options of `coli mirror plan` and `stage`."""

    usage: Annotated[
        str | None,
        typer.Option("--usage", metavar="FILE", help="History of experts. Default: the model's.",
                     show_default=False),
    ] = None  # fmt: skip
    budget_gib: Annotated[
        float, typer.Option("--budget-gib", metavar="X", help="Most the copies may take, in GiB.")
    ] = 100.0
    reserve_gib: Annotated[
        float, typer.Option("--reserve-gib", metavar="X", help="Left free on that disk, in GiB.")
    ] = 10.0


@hookimpl
def register_commands(app: typer.Typer) -> None:
    """Add `coli mirror`."""
    app.add_typer(globals()["app"], name="mirror")


@hookimpl
def register_doctor_checks(register: RegisterCheck) -> None:
    """Tell whether the mirror that is set holds files of the model."""
    register("storage.mirror", _check)


@app.command("plan")
@takes(PlanOptions)
def plan_command(options: PlanOptions) -> None:
    """Say which files would be copied, and whether they fit."""
    body = _plan(options)
    _show(options, body)
    if not body["admitted"]:
        raise typer.Exit(EXIT_USAGE)


@app.command("stage")
@takes(PlanOptions)
def stage_command(options: PlanOptions) -> None:
    """Copy the planned files; what is there already is kept."""
    body = _plan(options)
    if not body["admitted"]:
        _show(options, body)
        raise typer.Exit(EXIT_USAGE)
    roots = [Path(root) for root in body["roots"]]
    files = [Path(row["path"]) for row in body["files"]]
    with _meter(options) as tell:
        stage(files, Path(body["mirror"]), roots[0], tell)
    body["staged"] = True
    _show(options, body)
    if not options.quiet:
        say(f"use it with COLI_MODEL_MIRROR={body['mirror']}")


@app.command("verify")
@takes(VerifyOptions)
def verify_command(options: VerifyOptions) -> None:
    """Read every copy again and compare it."""
    roots, mirror, _ = _places(options)
    with _meter(options) as tell:
        right, wrong = verify(mirror, roots, tell)
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "ready": not wrong, "mirror": str(mirror),
                "verified": len(right), "failed": len(wrong), "failures": wrong}  # fmt: skip
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(f"{len(right)} files are right, {len(wrong)} are not\n")
    for problem in wrong:
        say(f"coli: {problem}")
    if wrong:
        raise typer.Exit(_EXIT_UNVERIFIED)


def _places(options: VerifyOptions) -> tuple[list[Path], Path, ResolvedSettings]:
    """Return the model's folders, the mirror and the settings."""
    prepare(options, "mirror")
    settings = effective_settings(options.config, "mirror", options.profile)
    wanted = options.model or settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    mirror = options.mirror or settings.text("model_mirror")
    if mirror is None:
        raise UsageError("no mirror was named", hint="use --mirror or COLI_MODEL_MIRROR")
    if os.pathsep in mirror:
        raise UsageError(f"{mirror!r} names several mirrors", hint="name one with --mirror")
    path, _ = locate_model(wanted)
    roots = [path, *(path_of("--source-dir", word) for word in options.source_dir or ())]
    for root in roots[1:]:
        if not root.is_dir():
            raise UsageError(f"--source-dir: there is no folder {root}")
    return roots, path_of("--mirror", mirror).absolute(), settings


def _plan(options: PlanOptions) -> dict[str, Any]:
    roots, mirror, _ = _places(options)
    for name, value in (
        ("--budget-gib", options.budget_gib),
        ("--reserve-gib", options.reserve_gib),
    ):
        if not 0 <= value < 1e9 or (name == "--budget-gib" and value == 0):
            raise UsageError(f"{name}: {value} is not a size in GiB")
    folder = roots[0] if roots[0].is_dir() else roots[0].parent
    history = path_of("--usage", options.usage) if options.usage else folder / _USAGE
    usage = read_usage(history)
    selections = sum(usage.values())
    files = weight_files(roots)
    there = _existing(mirror)
    free = shutil.disk_usage(there).free
    reserve, budget = int(options.reserve_gib * _GIB), int(options.budget_gib * _GIB)
    chosen = choose(files, usage, budget)
    selected = sum(file.nbytes for file, _ in chosen)
    present = sum(file.nbytes for file, _ in chosen if _is_copied(file.path, mirror))
    remaining = selected - present
    reason = None
    if not selections:
        reason = "usage_history_missing"
    elif not chosen:
        reason = "no_usage_ranked_shards_fit_the_budget"
    elif remaining + reserve > free:
        reason = "free_space_reserve"
    warnings = []
    if there.stat().st_dev == folder.stat().st_dev:
        warnings.append("the mirror is on the same disk as the model: it makes nothing faster")
    return {
        "schema_version": _SCHEMA_VERSION,
        "roots": [str(root) for root in roots],
        "mirror": str(mirror),
        "usage_history_present": history.is_file(),
        "usage_selections": selections,
        "budget_bytes": budget,
        "reserve_bytes": reserve,
        "free_bytes": free,
        "selected_bytes": selected,
        "remaining_bytes": remaining,
        "projected_free_bytes": free - remaining,
        "admitted": reason is None,
        "reason": reason,
        "warnings": warnings,
        "files": [
            {"name": file.path.name, "path": str(file.path), "bytes": file.nbytes,
             "worth": round(worth, 6)}
            for file, worth in chosen
        ],
    }  # fmt: skip


def _show(options: PlanOptions, body: dict[str, Any]) -> None:
    if options.json:
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if body["files"]:
        rows = [(row["name"], f"{row['bytes'] / 1e9:.2f} GB", f"{row['worth']:.2f}")
                for row in body["files"]]  # fmt: skip
        show_table([("file", False), ("size", True), ("worth", True)], rows)
    for warning in body["warnings"]:
        say(f"coli: {warning}")
    reasons = {
        "usage_history_missing": "there is no history of experts yet: let the model answer first",
        "no_usage_ranked_shards_fit_the_budget": "no file that was used fits --budget-gib",
        "free_space_reserve": f"{body['free_bytes'] / 1e9:.1f} GB are free, too few for"
        f" {body['remaining_bytes'] / 1e9:.1f} GB and the reserve of"
        f" {body['reserve_bytes'] / 1e9:.1f} GB",
    }
    if body["reason"]:
        say(f"coli: not possible: {reasons[body['reason']]}")
    elif not options.quiet:
        word = "copied" if body.get("staged") else "to copy"
        say(f"{len(body['files'])} files, {body['selected_bytes'] / 1e9:.2f} GB {word}")


def _meter(
    options: VerifyOptions,
) -> AbstractContextManager[Callable[[str, int, int], None]]:
    return nullcontext(lambda *_: None) if options.quiet or options.json else progress()


def _existing(path: Path) -> Path:
    """Return a path or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _is_copied(file: Path, mirror: Path) -> bool:
    copy = mirror / file.name
    return copy.is_file() and copy.stat().st_size == file.stat().st_size


def _check(context: CheckContext) -> CheckResult:
    named = context.settings.text("model_mirror")
    if named is None or context.model_path is None:
        return CheckResult(CheckStatus.SKIP, "no mirror is set")
    try:
        own = {file.path.name: file for file in weight_files([context.model_path])}
    except ColibriError as error:
        return CheckResult(CheckStatus.SKIP, error.message)
    problems, admitted = [], 0
    for word in named.split(os.pathsep):
        mirror = Path(word).expanduser()
        if not mirror.is_dir():
            problems.append(f"{mirror} is no folder")
            continue
        copies = [name for name in own if (mirror / name).is_file()]
        good = [name for name in copies if _is_copied(own[name].path, mirror)]
        admitted += len(good)
        problems += [f"{name} in {mirror} differs" for name in copies if name not in good]
        if not copies:
            problems.append(f"{mirror} holds no file of the model")
    if problems:
        return CheckResult(CheckStatus.WARN, "; ".join(problems[:4]))
    return CheckResult(CheckStatus.PASS, f"{admitted} copies")
