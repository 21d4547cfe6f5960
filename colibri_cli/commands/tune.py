"""`coli tune`: measure which settings of speed suit a model on this machine, and keep them."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colibri_cli.errors import UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_cli.tuning.search import Measured, Outcome

_SCHEMA_VERSION = 1
_PROMPT = "The history of the lighthouse begins with fires on hills, and then"


@dataclass(frozen=True, kw_only=True)
class TuneOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli tune`."""

    prompt: Annotated[
        str, typer.Option("--prompt", metavar="TEXT", help="Text that is continued.")
    ] = _PROMPT
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", help="Tokens per answer.", min=4, max=4096)
    ] = 16
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", help="Answers per candidate.", min=1, max=5)
    ] = 2
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Most seconds for one candidate.")
    ] = 900.0
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain", metavar="X", help="Share a candidate must gain.", min=0.0, max=1.0
        ),
    ] = 0.03
    show: Annotated[
        bool, typer.Option("--show", help="Print the kept profile, measure nothing.", metavar="")
    ] = False
    rm: Annotated[
        bool, typer.Option("--rm", help="Remove the kept profile, measure nothing.", metavar="")
    ] = False


@takes(TuneOptions)
def command(options: TuneOptions) -> None:
    """Measure which settings are fastest here; answers never change."""
    settings = prepare(options, "tune")
    if not 0 < options.timeout <= 1e6:
        raise UsageError(f"--timeout: {options.timeout} is not a number of seconds above 0")
    if settings.switch("auto_tier") and not (options.show or options.rm):
        raise UsageError(
            "--auto-tier would measure with the settings that are kept", hint="leave it out"
        )
    from colibri_cli.errors import ModelNotGiven
    from colibri_cli.model_store.store import locate_model
    from colibri_cli.tuning.profile import fingerprint, profile_path, write_profile

    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    path, name = locate_model(wanted)
    mark = fingerprint(path)
    if options.show or options.rm:
        _kept(options, profile_path(mark))
        return
    from colibri_cli.runtime import run_async
    from colibri_cli.tuning.running import TunePlan, tune

    plan = TunePlan(
        options.prompt, options.tokens, options.repeats, options.timeout, options.min_gain
    )
    _, outcome = run_async(tune(settings, plan, _teller(options)))
    body = _body(name, outcome, options.min_gain)
    file = write_profile(mark, body)
    if options.json:
        text = json.dumps({"schema_version": _SCHEMA_VERSION, "profile": str(file), **body})
        sys.stdout.write(f"{text}\n")
        return
    sys.stdout.write(f"{_verdict(outcome)}\n")
    if not options.quiet:
        how = "; --auto-tier applies it" if outcome.winner is not None else ""
        say(f"kept in {file}{how}")


def _teller(options: TuneOptions) -> Any:  # noqa: ANN401 - a function
    def tell(found: "Measured") -> None:
        if not options.quiet:
            verdict = f", {found.verdict}" if found.verdict else ""
            say(f"{found.name}: {found.tokens_per_second:.2f} tok/s{verdict}")

    return tell


def _body(model: str, outcome: "Outcome", min_gain: float) -> dict[str, Any]:
    winner = outcome.winner
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        "accepted": winner is not None,
        "minimum_gain": min_gain,
        "gain": round(outcome.gain, 4),
        "reason": outcome.reason or None,
        "baseline": outcome.baseline.document(),
        "winner": None if winner is None else winner.document(),
        "candidates": [candidate.document() for candidate in outcome.candidates],
    }


def _verdict(outcome: "Outcome") -> str:
    winner = outcome.winner
    if winner is None:
        return f"baseline kept: {outcome.reason}"
    before, after = outcome.baseline.tokens_per_second, winner.tokens_per_second
    words = ", ".join(f"{name} = {value}" for name, value in winner.settings.items())
    gain = 100 * outcome.gain
    return f"{winner.name}: {before:.2f} to {after:.2f} tok/s (+{gain:.1f} %), {words}"


def _kept(options: TuneOptions, file: Any) -> None:  # noqa: ANN401 - a Path
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        say("no profile of this model on this machine is kept")
        return
    if options.rm:
        file.unlink()
        return
    sys.stdout.write(text if not options.json else json.dumps(json.loads(text)) + "\n")
