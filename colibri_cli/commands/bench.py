"""`coli bench`: how fast a model runs here, its disk (`disk`), its experts from disk (`stream`)."""

import json
import os
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from colibri_cli.errors import ModelNotGiven, StoreError, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, path_of, takes
from colibri_cli.quality.command import QualityOptions
from colibri_cli.quality.command import run as run_quality
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say, teller

if TYPE_CHECKING:
    from colibri_cli.benchmark.figures import BenchResult

_MAX_SIZE = 1_000_000
_MAX_BATCH = 16
_MAX_DEPTH = 1024
_MAX_BUDGET = 1e6  # GB


@dataclass(frozen=True, kw_only=True)
class BenchOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli bench`."""

    prompt: Annotated[
        str, typer.Option("--prompt", metavar="N,N", help="Prompt lengths for prefill, in tokens.")
    ] = "128,512"
    generate: Annotated[
        str, typer.Option("--generate", metavar="N", help="Tokens to generate for decode.")
    ] = "128"
    context: Annotated[
        str,
        typer.Option("--context", metavar="N,N", help="Context lengths at which to decode."),
    ] = "16"
    batch: Annotated[
        str,
        typer.Option("--batch", metavar="N,N", help="Requests at the same time for decode."),
    ] = "1"
    repeats: Annotated[
        str,
        typer.Option(
            "--rounds",
            "--repeats",
            metavar="N",
            help="Rounds, each of which measures everything once; medians are reported.",
        ),
    ] = "6"  # the fewest that give a median an interval
    no_load: Annotated[
        bool,
        typer.Option(
            "--no-load", help="Do not measure loading, nor the first answer after it.", metavar=""
        ),
    ] = False
    no_chart: Annotated[bool, typer.Option("--no-chart", help="Only tables.", metavar="")] = False
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Also write the JSON document to a file.",
            show_default=False,
        ),
    ] = None
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach",
            metavar="URL",
            help="Measure this running server over HTTP instead of an engine.",
            show_default=False,
        ),
    ] = None
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare", metavar="A B",
            help="Compare two documents of --out or --json; nothing is run.",
            show_default=False,
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DiskOptions(JsonOptions, OutputOptions):
    """Options of `coli bench disk`."""

    directory: Annotated[
        str, typer.Argument(metavar="[DIR]", help="A directory on the disk.", show_default=False)
    ] = "."
    read: Annotated[str, typer.Option("--read", metavar="SIZE,SIZE", help="Sizes of one read.")] = (
        "20M"
    )
    depth: Annotated[
        str, typer.Option("--depth", metavar="N,N", help="Reads that are open at a time.")
    ] = "1,8"
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="X", help="Length of each measurement.")
    ] = 0.5
    file_size: Annotated[
        str,
        typer.Option(
            "--file-size",
            metavar="SIZE",
            help="Read weight files at least this large, or a file of this size that is written "
            "and deleted.",
        ),
    ] = "1G"


@dataclass(frozen=True, kw_only=True)
class StreamOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli bench stream`."""

    budgets: Annotated[
        str,
        typer.Option(
            "--budgets",
            metavar="GB,GB",
            help="Memory the engine may take, one run each.",
            show_default=False,
        ),
    ] = ""
    prompt: Annotated[str, typer.Option("--prompt", metavar="N", help="Tokens of the prompt.")] = (
        "128"
    )
    generate: Annotated[
        str, typer.Option("--generate", metavar="N", help="Tokens of each phase of decoding.")
    ] = "32"


app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[COMMAND]",
)


@app.callback()
@takes(BenchOptions)
def command(options: BenchOptions, context: typer.Context) -> None:
    """Measure speed by context and batch; compare two reports."""
    if context.invoked_subcommand is not None:
        return
    settings = prepare(options, "bench")
    if options.compare is not None:
        _compare(options, *map(Path, options.compare))
        return
    from colibri_cli.benchmark.measuring import BenchPlan
    from colibri_cli.benchmark.running import run_attached_bench, run_bench
    from colibri_cli.runtime import run_async

    out = _new_file(options.out)
    plan = BenchPlan(
        prompt_sizes=_numbers("--prompt", options.prompt, _MAX_SIZE),
        num_generated=_one("--generate", options.generate, _MAX_SIZE),
        contexts=_numbers("--context", options.context, _MAX_SIZE),
        batches=_numbers("--batch", options.batch, _MAX_BATCH),
        repeats=_one("--rounds", options.repeats, 1000),
    )
    tell = teller(is_quiet=options.quiet)
    if options.attach is not None:
        result = run_async(run_attached_bench(settings, options.attach, plan, tell))
    else:
        result = run_async(run_bench(settings, plan, tell, has_loads=not options.no_load))
    _show(options, result)
    if out is not None:
        _write(out, json.dumps(result.document(), ensure_ascii=False))


@app.command("disk")
@takes(DiskOptions)
def disk(options: DiskOptions, context: typer.Context) -> None:
    """Measure how fast a disk gives experts, in every way the engine can read them."""
    options = _with_options_before(options, context)
    prepare(options, "bench")
    from colibri_cli.benchmark.disk import DiskPlan, measure_disk, parse_read_size, parse_size
    from colibri_cli.console import print_prose, print_table

    if not 0.05 <= options.seconds <= 60:
        raise UsageError(f"--seconds: {options.seconds:g} is not in 0.05..60")
    reads = (parse_read_size("--read", part) for part in options.read.split(","))
    plan = DiskPlan(
        directory=path_of("DIR", options.directory),
        read_sizes=tuple(dict.fromkeys(reads)),
        depths=_numbers("--depth", options.depth, _MAX_DEPTH),
        seconds=options.seconds,
        file_bytes=parse_size("--file-size", options.file_size, low=1 << 20),
    )

    def tell(done: int, total: int) -> None:
        if not options.quiet and sys.stderr.isatty():
            sys.stderr.write(f"\rmeasuring {done} of {total}" + ("\n" if done == total else ""))
            sys.stderr.flush()

    result = measure_disk(plan, tell)
    if options.json:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        return
    columns = [("read", True), ("at a time", True), ("order", False), ("through", False)]
    print_table([*columns, ("page cache", False), ("GB/s", True)], result.table())
    print_prose(result.summary())


@app.command("quality")
@takes(QualityOptions)
def quality(options: QualityOptions, context: typer.Context) -> None:
    """Score multiple-choice tasks by log-likelihood, or compare two runs of them."""
    run_quality(_with_options_before(options, context))


@app.command("stream")
@takes(StreamOptions)
def stream(options: StreamOptions, context: typer.Context) -> None:
    """Measure a model whose experts are read from disk as they are needed, by memory."""
    options = _with_options_before(options, context)
    settings = prepare(options, "bench")
    from colibri_cli.benchmark.stream import COLUMNS, StreamPlan, measure_stream
    from colibri_cli.console import print_prose, print_table
    from colibri_cli.model_store.store import locate_model

    if options.engine_bin is not None:
        raise UsageError("--engine-bin cannot be measured so", hint="leave it out")
    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    path, _ = locate_model(wanted)
    plan = StreamPlan(
        path=path,
        budgets=_budgets(options.budgets),
        prompt=_one("--prompt", options.prompt, _MAX_SIZE),
        tokens=_one("--generate", options.generate, _MAX_SIZE),
    )

    def tell(done: int, total: int) -> None:
        if not options.quiet and sys.stderr.isatty():
            sys.stderr.write(f"\rmeasured {done} of {total}" + ("\n" if done == total else ""))
            sys.stderr.flush()

    result = measure_stream(plan, settings, tell)
    if options.json:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        return
    print_table(list(COLUMNS), result.table())
    print_prose(result.summary())


def _budgets(text: str) -> tuple[float, ...]:
    """Return GB of memory.

    Raises:
        UsageError: there are none, or one is no amount of memory.
    """
    if not text:
        raise UsageError("no --budgets were given", hint="name some, such as --budgets 4,8")
    found = []
    for part in text.split(","):
        try:
            budget = float(part)
        except ValueError:
            budget = 0.0
        if not 0 < budget <= _MAX_BUDGET:
            raise UsageError(f"--budgets: {part.strip()!r} is not a number of GB above 0")
        found.append(budget)
    return tuple(found)


_Options = TypeVar("_Options", DiskOptions, StreamOptions, QualityOptions)


def _with_options_before(options: _Options, context: typer.Context) -> _Options:
    """Return the options with those that stood between `bench` and its subcommand.

    Raises:
        UsageError: one of them is none of the subcommand's.
    """
    before, name_of = context.parent, context.info_name
    assert before is not None
    given = {
        parameter.name: before.params[parameter.name]
        for parameter in before.command.params
        if parameter.name in before.params
        and (source := before.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    }
    known = {entry.name for entry in fields(options)}
    for name in given:
        if name not in known:
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"`coli bench {name_of}` does not take {flag}",
                hint=f"see `coli bench {name_of} --help`",
            )
    return replace(options, **given)


def _new_file(name: str | None) -> Path | None:
    """Return the file to write, checked before anything is measured.

    Raises:
        UsageError: there is no such directory.
    """
    if name is None:
        return None
    path = path_of("--out", name)
    place = path if path.exists() else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(place, os.W_OK):
        raise UsageError(f"--out: {name!r} is no file that can be written", hint="name a file")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"--out: {path} cannot be written ({error.strerror})", hint="name another file"
        ) from error


def _show(options: BenchOptions, result: "BenchResult") -> None:
    if options.json:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        return
    from colibri_cli.console import print_lines, print_prose, print_table, stdout_width
    from colibri_cli.terminal.interval_chart import bar_chart

    columns = [("what", False), ("tokens", True), ("context", True), ("batch", True)]
    print_table([*columns, ("tokens/s", True), ("range", True)], result.table())
    for title, bars in () if options.no_chart else result.charts():
        print_prose(["", title])
        print_lines(bar_chart(bars, stdout_width()))
    print_prose(["", *result.summary()])


def _compare(options: BenchOptions, first: Path, second: Path) -> None:
    """Print what became better or worse between two reports."""
    from colibri_cli.benchmark.comparing import compare, read_report, unlike

    before, after = read_report(first), read_report(second)
    found, notes = compare(before, after), unlike(before, after)
    if options.json:
        rows = [asdict(row) for row in found]
        body = {"schema_version": 1, "kind": "bench comparison", "comparison": rows}
        sys.stdout.write(json.dumps({**body, "differs": notes}, ensure_ascii=False) + "\n")
        return
    from colibri_cli.console import print_lines, print_prose, print_table, stdout_width
    from colibri_cli.terminal.comparison_view import COLUMNS, ratio_bars, rows_of
    from colibri_cli.terminal.interval_chart import ratio_chart

    print_table(list(COLUMNS), rows_of(found))
    bars = [] if options.no_chart else ratio_bars(found)
    if bars:
        title = "B against A: less to the left of the line, more to the right"
        print_prose(["", title])
        print_lines(ratio_chart(bars, stdout_width()))
    for note in notes:
        say(f"coli: {note}")


def _numbers(flag: str, text: str, limit: int) -> tuple[int, ...]:
    numbers = tuple(_number(flag, part, limit) for part in text.split(","))
    return tuple(dict.fromkeys(numbers))


def _one(flag: str, text: str, limit: int) -> int:
    return _number(flag, text, limit)


def _number(flag: str, text: str, limit: int) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if not 1 <= number <= limit:
        raise UsageError(f"{flag}: {text.strip()!r} is not a whole number in 1..{limit}")
    return number
