"""`coli atlas`: which topics each expert of a model prefers, measured on the model itself."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colibri_cli.plugin_api import (
    EngineOptions,
    JsonOptions,
    ModelNotGiven,
    OutputOptions,
    ResolvedSettings,
    UsageError,
    atlas_file,
    hookimpl,
    local_engine,
    locate_model,
    path_of,
    prepare,
    run_async,
    say,
    show_table,
    takes,
)

if TYPE_CHECKING:  # plugins are loaded by many who measure nothing
    from colibri_plugins._atlas_analysis import Atlas, Guess

_SCHEMA_VERSION = 1
_TOP_ROWS = 10
_BANDS = 10
_RUNS = "runs"

app = typer.Typer(
    help="Measure which topics each expert prefers.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Model = Annotated[
    str | None,
    typer.Option("--model", metavar="TEXT", help="The model whose sweep is meant."
                 " Variable: COLI_MODEL.", show_default=False),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SweepOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli atlas sweep`."""

    probes: Annotated[
        str | None,
        typer.Option("--probes", metavar="FILE", help="JSON object of topics, each a list of"
                     " prompts. Default: ten topics with three each.", show_default=False),
    ] = None  # fmt: skip
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs. Default: one for each"
                     " model, in the user's data.", show_default=False),
    ] = None  # fmt: skip
    ngen: Annotated[
        int, typer.Option("--ngen", metavar="N", help="Tokens to generate for each prompt.",
                          min=1, max=100_000)
    ] = 64  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions(JsonOptions, OutputOptions):
    """Options of `coli atlas analyze`."""

    model: _Model = None
    stats: Annotated[
        str | None,
        typer.Option("--stats", metavar="DIR", help="Folder of runs. Default: the model's.",
                     show_default=False),
    ] = None  # fmt: skip
    min_count: Annotated[
        int, typer.Option("--min-count", metavar="N", help="Leave out experts chosen less.", min=0)
    ] = 30
    min_runs: Annotated[
        int, typer.Option("--min-runs", metavar="N", help="Leave out experts that fewer prompts of"
                          " their topic chose.", min=1)
    ] = 2  # fmt: skip
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="All figures. Default: atlas.json beside the"
                     " runs.", show_default=False),
    ] = None  # fmt: skip
    web: Annotated[
        str | None,
        typer.Option("--web", metavar="FILE", help="The file of the dashboard. Default: where"
                     " `coli serve` finds it.", show_default=False),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(JsonOptions, OutputOptions):
    """Options of `coli atlas validate`."""

    folder: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="Folder of runs. Default: the model's.",
                       show_default=False),
    ] = None  # fmt: skip
    model: _Model = None
    k: Annotated[
        int, typer.Option("--k", metavar="N", help="Experts that stand for a topic.", min=1)
    ] = 200


@hookimpl
def register_commands(app: typer.Typer) -> None:
    """Add `coli atlas`."""
    app.add_typer(globals()["app"], name="atlas")


@app.command("sweep")
@takes(SweepOptions)
def sweep_command(options: SweepOptions) -> None:
    """Let the model answer prompts of known topics and record the experts it chooses."""
    settings = prepare(options, "atlas")
    from colibri_plugins._atlas_runs import PROBES, read_probes

    folder = path_of("--out", options.out) if options.out else _folder(None, settings)
    probes = read_probes(path_of("--probes", options.probes) if options.probes else PROBES)
    num_run, num_kept = run_async(_sweep(options, settings, probes, folder))
    if options.json:
        _print_json({"out": str(folder), "run": num_run, "kept": num_kept})
        return
    sys.stdout.write(f"{folder}: {num_run} runs made, {num_kept} were there\n")


@app.command("analyze")
@takes(AnalyzeOptions)
def analyze_command(options: AnalyzeOptions) -> None:
    """Compute each expert's affinities, and write the file the dashboard shows."""
    folder = _folder(options.stats, prepare(options, "atlas"))
    from colibri_plugins._atlas_analysis import analyze, page_data, report
    from colibri_plugins._atlas_runs import read_runs, write_json

    runs = read_runs(folder)
    atlas = analyze(runs, min_count=options.min_count, min_runs=options.min_runs)
    if not atlas.experts:
        raise UsageError(
            "no expert was chosen often enough", hint="sweep more, or lower --min-count"
        )
    out = path_of("--out", options.out) if options.out else folder / "atlas.json"
    web = path_of("--web", options.web) if options.web else atlas_file(str(runs[0].model["id"]))
    head = {"schema_version": _SCHEMA_VERSION, "model": runs[0].model, "num_runs": len(runs)}
    body = {**head, **report(atlas)}
    write_json(out, body)
    write_json(web, page_data(atlas))
    if options.json:
        _print_json({**body, "out": str(out), "web": str(web)})
        return
    _show(atlas)
    if not options.quiet:
        say(f"all figures: {out}\nfor the dashboard: {web}")


@app.command("validate")
@takes(ValidateOptions)
def validate_command(options: ValidateOptions) -> None:
    """Guess the topic of each run from its experts and the other runs alone."""
    folder = _folder(options.folder, prepare(options, "atlas"))
    from colibri_plugins._atlas_analysis import validate
    from colibri_plugins._atlas_runs import read_runs

    guesses = validate(read_runs(folder), k=options.k)
    right = sum(guess.topic == guess.guess for guess in guesses)
    chance = 1 / len({guess.topic for guess in guesses})
    if options.json:
        wrong = [_wrong(guess) for guess in guesses if guess.topic != guess.guess]
        figures = {"num_runs": len(guesses), "num_right": right, "k": options.k}
        _print_json({**figures, "accuracy": right / len(guesses), "chance": chance, "wrong": wrong})
        return
    sys.stdout.write(
        f"{right} of {len(guesses)} topics found ({right / len(guesses):.1%}); "
        f"chance is {chance:.1%}\n"
    )
    for guess in guesses:
        if guess.topic != guess.guess and not options.quiet:
            say(f"{guess.topic} taken for {guess.guess}: {guess.prompt}")


async def _sweep(
    options: SweepOptions, settings: ResolvedSettings, probes: dict[str, list[str]], folder: Path
) -> tuple[int, int]:
    from colibri_plugins._atlas_runs import sweep

    def tell(line: str) -> None:
        if not options.quiet:
            say(line)

    tell("loading the model")
    # What is guessed ahead is routed, too; a second slot would keep prefixes of other prompts.
    async with local_engine(settings, draft="off", kv_slots=1) as engine:
        return await sweep(engine, probes, folder, options.ngen, tell)


def _folder(given: str | None, settings: ResolvedSettings) -> Path:
    """Return the folder of runs that is meant."""
    if given is not None:
        return path_of("DIR", given)
    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    return atlas_file(locate_model(wanted)[1]).with_name(_RUNS)


def _show(atlas: "Atlas") -> None:
    top = sorted(atlas.experts, key=lambda expert: -expert.specialization)[:_TOP_ROWS]
    show_table(
        [("layer", True), ("expert", True), ("chosen", True), ("specialization", True),
         ("topic", False), ("lift", True), ("runs", False)],
        [(str(e.layer), str(e.expert), str(e.total), f"{e.specialization:.3f}",
          atlas.topics[e.top], f"{e.lift:.2f}", f"{e.num_fired}/{e.num_runs}") for e in top],
    )  # fmt: skip
    sys.stdout.write("\n")
    show_table(
        [("layers", False), ("experts", True), ("specialization", True), ("specialists", True)],
        [_band(atlas, band) for band in _bands(sorted({e.layer for e in atlas.experts}))],
    )
    sys.stdout.write("\n")
    preferred = Counter(atlas.topics[e.top] for e in atlas.experts)
    special = Counter(atlas.topics[e.top] for e in atlas.experts if e.is_specialist)
    show_table(
        [("topic", False), ("preferred by", True), ("specialists", True)],
        [(topic, str(preferred[topic]), str(special[topic])) for topic in atlas.topics],
    )
    sys.stdout.write(
        f"\n{len(atlas.experts)} experts, {special.total()} specialists; left out: "
        f"{atlas.num_rare} chosen too seldom, {atlas.num_unreplicated} in too few runs\n"
    )


def _bands(layers: Sequence[int]) -> list[Sequence[int]]:
    size = -(-len(layers) // _BANDS)
    return [layers[i : i + size] for i in range(0, len(layers), size)]


def _band(atlas: "Atlas", layers: Sequence[int]) -> tuple[str, str, str, str]:
    experts = [e for e in atlas.experts if layers[0] <= e.layer <= layers[-1]]
    mean = sum(e.specialization for e in experts) / len(experts)
    name = str(layers[0]) if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"
    return name, str(len(experts)), f"{mean:.4f}", str(sum(e.is_specialist for e in experts))


def _wrong(guess: "Guess") -> dict[str, str]:
    return {"topic": guess.topic, "guess": guess.guess, "prompt": guess.prompt}


def _print_json(body: dict[str, Any]) -> None:
    body = {"schema_version": _SCHEMA_VERSION, **body}
    sys.stdout.write(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")
