"""`coli bench`: how fast a model runs here, its disk (`disk`), its experts from disk (`stream`)."""

import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from colibri_cli.errors import ModelNotGiven, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, takes
from colibri_cli.quality.command import QualityOptions
from colibri_cli.quality.command import run as run_quality
from colibri_cli.settings import prepare
from colibri_protocol.settings import ResolvedSettings

if TYPE_CHECKING:
    from colibri_cli.backends.native import NativeBackend
    from colibri_cli.benchmark.figures import BenchResult
    from colibri_cli.benchmark.measuring import BenchPlan

_MAX_SIZE = 1_000_000
_MAX_BATCH = 16
_WARM_LOADS = 3
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
        str, typer.Option("--repeats", metavar="N", help="Repeats; medians are reported.")
    ] = "3"
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Do not measure load times.", metavar="")
    ] = False


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
    from colibri_cli.benchmark.measuring import BenchPlan
    from colibri_cli.runtime import run_async

    plan = BenchPlan(
        prompt_sizes=_numbers("--prompt", options.prompt, _MAX_SIZE),
        num_generated=_one("--generate", options.generate, _MAX_SIZE),
        contexts=_numbers("--context", options.context, _MAX_SIZE),
        batches=_numbers("--batch", options.batch, _MAX_BATCH),
        repeats=_one("--repeats", options.repeats, 1000),
    )
    result = run_async(_bench(options, settings, plan))
    _show(options, result)


@app.command("disk")
@takes(DiskOptions)
def disk(options: DiskOptions, context: typer.Context) -> None:
    """Measure how fast a disk gives experts, in every way the engine can read them."""
    options = _with_options_before(options, context)
    prepare(options, "bench")
    from colibri_cli.benchmark.disk import DiskPlan, measure_disk, parse_read_size, parse_size
    from colibri_cli.console import print_table

    if not 0.05 <= options.seconds <= 60:
        raise UsageError(f"--seconds: {options.seconds:g} is not in 0.05..60")
    reads = (parse_read_size("--read", part) for part in options.read.split(","))
    plan = DiskPlan(
        directory=Path(options.directory).expanduser(),
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
    sys.stdout.write("\n".join(result.summary()) + "\n")


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
    from colibri_cli.console import print_table
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
    sys.stdout.write("\n".join(result.summary()) + "\n")


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


async def _bench(
    options: BenchOptions, settings: ResolvedSettings, plan: "BenchPlan"
) -> "BenchResult":
    from colibri_cli.benchmark.figures import BenchResult
    from colibri_cli.benchmark.measuring import (
        drop_from_page_cache,
        measure_speed,
        peak_memory_of_children,
        timed_load,
    )

    def tell(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def make() -> "NativeBackend":
        return _backend(settings, plan)

    cold = warm = None
    if not options.no_load:
        tell("loading, cold and warm")
        if drop_from_page_cache(make().model_path):
            cold = await timed_load(make, 1)
        warm = await timed_load(make, _WARM_LOADS)
    backend = make()
    try:
        await backend.open()
        card = (await backend.models())[0]
        hardware = backend.telemetry().hardware
        result = BenchResult(card.id, card.details, hardware.cpu if hardware else "", cold, warm)
        await measure_speed(backend, plan, result, tell)
    finally:
        await backend.close()
    result.peak_memory_bytes = peak_memory_of_children()
    return result


def _backend(settings: ResolvedSettings, plan: "BenchPlan") -> "NativeBackend":
    """Return a backend whose engine has the context and the slots the plan needs."""
    from colibri_cli.backends.opening import native_backend

    # Nothing but the model is measured, nothing is found computed, and runs do not differ.
    extra = {"kv_save": 0, "usage_save": 0}
    if not settings.is_given("ctx"):
        extra["ctx"] = plan.context_needed
    if not settings.is_given("kv_slots"):
        extra["kv_slots"] = max(plan.batches)
    return native_backend(settings, extra=extra)


def _show(options: BenchOptions, result: "BenchResult") -> None:
    if options.json:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        return
    from colibri_cli.console import print_table

    columns = [("what", False), ("tokens", True), ("context", True), ("batch", True)]
    print_table([*columns, ("tokens/s", True), ("range", True)], result.table())
    sys.stdout.write("\n".join(result.summary()) + "\n")


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
