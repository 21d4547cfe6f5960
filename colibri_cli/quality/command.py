"""`coli bench quality`: tasks decided by log-likelihood, and comparing two runs."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from colibri_cli import completing
from colibri_cli.errors import EXIT_FAILED, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, path_of, setting
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

_SCHEMA_VERSION = 1
_MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class QualityOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli bench quality`."""

    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK]...",
            help="`smoke`, a public one (fetched once: hellaswag, arc_challenge, arc_easy, mmlu,"
            " winogrande, piqa, openbookqa), NAME for the file NAME.jsonl in --data, or one of a"
            " plugin. Default: hellaswag, arc_challenge, mmlu.",
            show_default=False,
            autocompletion=completing.task_names,
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help="Folder of tasks. Default: bench in the user's cache.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="Most questions of a task.", min=1)
    ] = 40
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Keep results as they come; a second run goes on.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    offline: Annotated[bool | None, setting("offline", "Data")] = None
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Without the model's start tokens.", metavar="")
    ] = False
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare", metavar="A B", help="Compare two documents of --json; nothing is run.",
            show_default=False,
        ),
    ] = None  # fmt: skip


def run(options: QualityOptions) -> None:
    """Score tasks, or compare two reports."""
    settings = prepare(options, "bench")
    if options.compare is not None:
        _compare(options, *map(Path, options.compare))
        return
    from colibri_cli.backends.opening import native_backend
    from colibri_cli.paths import cache_dir
    from colibri_cli.quality.gathering import Gathering
    from colibri_cli.quality.running import run_tasks
    from colibri_cli.quality.tasks import USUAL
    from colibri_cli.runtime import run_async

    backend = native_backend(settings, extra={"kv_save": 0, "usage_save": 0})
    data = cache_dir() / "bench" if options.data is None else path_of("--data", options.data)
    gathering = Gathering(
        data=data,
        limit=options.limit,
        url=settings.text("datasets_url") or "",
        is_offline=settings.switch("offline") or False,
        is_quiet=options.quiet,
    )
    tasks = gathering.tasks(options.tasks or USUAL)
    if not tasks:
        say("coli: no task is left; `smoke` needs no data")
        raise typer.Exit(EXIT_FAILED)

    def tell(task: str, done: int, total: int) -> None:
        if not options.quiet and (done % 5 == 0 or done == total):
            say(f"{task}: {done} of {total}")

    out = None if options.out is None else path_of("--out", options.out)
    report = run_async(run_tasks(backend, tasks, out, tell, has_start=not options.no_start))
    if options.json:
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
        return
    _show(report)


def _show(report: dict[str, Any]) -> None:
    from colibri_cli.console import print_prose, print_table

    columns = [("task", False), ("n", True), ("acc", True), ("95 %", False)]
    rows = [
        (
            row["task"], str(row["n"]), f"{row['acc']:.1f}", _interval(row["acc_interval"]),
            f"{row['acc_norm']:.1f}", _interval(row["acc_norm_interval"]),
        )
        for row in report["tasks"]
    ]  # fmt: skip
    print_table([*columns, ("acc_norm", True), ("95 %", False)], rows)
    start = report["start_tokens"] or "none"
    print_prose([f"mean acc_norm {report['mean_acc_norm']:.1f}; start tokens: {start}"])


def _compare(options: QualityOptions, first: Path, second: Path) -> None:
    from colibri_cli.console import print_table
    from colibri_cli.quality.results import compare

    rows = compare(_report(first), _report(second))
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "comparison": rows}
        sys.stdout.write(json.dumps(body) + "\n")
        return
    columns = [("task", False), ("figure", False), ("n", True), ("won", True), ("lost", True)]
    print_table(
        [*columns, ("difference", True), ("95 %", False), ("p", True)],
        [
            (
                row["task"], row["figure"], str(row["n"]), str(row["won"]), str(row["lost"]),
                f"{row['difference']:+.1f}", _interval(row["interval"]), f"{row['p']:.3f}",
            )
            for row in rows
        ],
    )  # fmt: skip


def _interval(bounds: list[float]) -> str:
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}"


def _report(path: Path) -> dict[str, Any]:
    from colibri_cli.quality.results import KIND

    hint = "name what `coli bench quality --json` printed"
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
        if body["kind"] != KIND:
            raise UsageError(f"{path} is no report of `coli bench quality`", hint=hint)
        for item in body["items"]:
            item["task"], item["id"], item["right"], item["right_by_length"]
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})", hint=hint) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is no report of `coli bench quality`", hint=hint) from error
    report: dict[str, Any] = body
    return report
