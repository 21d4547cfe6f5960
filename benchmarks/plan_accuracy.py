"""How near `coli plan` comes to what is then measured: three models, two budgets each.

    python benchmarks/plan_accuracy.py [--rounds 2] [--tokens 160] [--require 0.25] [--keep DIR]

The models have random weights and choose their experts as a large mixture does
(`python -m colibri_engine fixture`). The budgets leave room for half and for a fifth of the
experts, beside everything else. A round measures the machine anew (`coli plan --measure`), then
runs an engine in a process of its own: a reply whose first tokens warm the cache, then prompts of
one step each, no drafts. Medians of the rounds are compared. Exits 1 where an estimate is further
off than required.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.speeds import facts_text, machine_facts

CONTEXT = 1024
PROMPT = 256
PROMPTS = 3  # that are measured, once the cache is warm
WARM_TOKENS = 60
SHARES = (0.5, 0.2)
WORKER = "--worker"


class Fixture(NamedTuple):
    """A model: arguments of `python -m colibri_engine fixture`."""

    name: str
    arguments: tuple[str, ...]


FIXTURES = (
    Fixture("bench", ("--geometry", "bench", "--layers", "6", "--experts", "128")),
    Fixture("mini", ("--geometry", "glm-5.2-mini", "--layers", "8", "--experts", "64")),
    Fixture(
        "int8", ("--geometry", "bench", "--layers", "10", "--experts", "64", "--format", "int8")
    ),
)


class Figures(NamedTuple):
    """Tokens per second, and the share of experts found in memory while decoding."""

    decode: float
    prefill: float
    hits: float


# ---- the engine, in a process of its own --------------------------------------------------------


def run_engine(path: Path, ram_gb: float, num_tokens: int) -> None:
    """Print the figures of one engine."""
    from colibri_engine.config import read_config
    from colibri_engine.startup import load
    from colibri_protocol.messages import Finished, RequestOptions, SubmitExtended

    settings = {**os.environ, "SNAP": str(path), "COLI_RAM_GB": str(ram_gb)}
    config = replace(read_config((), settings), context_length=CONTEXT, kv_save=False)
    engine = load(config).engine
    rng = np.random.default_rng(1)

    def submit(number: int, max_tokens: int) -> None:
        options = RequestOptions(
            max_tokens=max_tokens, ignore_eos=True, temperature=1.0, seed=number
        )
        prompt = rng.integers(200, 8000, PROMPT).astype(np.int32)
        engine.submit(SubmitExtended(number, -1, options, ()), prompt)

    submit(1, WARM_TOKENS + num_tokens)
    times: list[float] = []
    counts: list[tuple[int, int]] = []
    messages: list[Any] = []
    while not any(isinstance(message, Finished) for message in messages):
        started = time.perf_counter()
        messages = list(engine.step())
        times.append(time.perf_counter() - started)
        counts.append(hits_and_misses(engine))
    warm = 1 + WARM_TOKENS
    decode = times[warm:]
    hits, misses = (after - before for before, after in zip(counts[warm], counts[-1], strict=True))
    prefills = []
    for number in range(2, 2 + PROMPTS):
        submit(number, 1)
        started = time.perf_counter()
        engine.step()
        prefills.append(time.perf_counter() - started)
    figures = Figures(
        len(decode) / sum(decode), PROMPT / median(prefills), hits / max(hits + misses, 1)
    )
    print(json.dumps(figures._asdict()), flush=True)
    os._exit(0)


def hits_and_misses(engine: Any) -> tuple[int, int]:  # noqa: ANN401 - whatever has counters
    """Return how many experts were found in memory so far, and how many were not."""
    body = engine.telemetry.report()["experts"] or {"hits": 0, "misses": 0}
    return int(body["hits"]), int(body["misses"])


# ---- both sides ---------------------------------------------------------------------------------


def planned(path: Path, ram_gb: float, *, measure: bool) -> dict[str, Any]:
    """Return what `coli plan` says."""
    command = [sys.executable, "-m", "colibri_cli", "plan", str(path), "--json"]
    command += ["--ctx", str(CONTEXT), "--ram", str(ram_gb)]
    command += ["--measure"] if measure else []
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
    plan: dict[str, Any] = json.loads(done.stdout)["plans"][0]
    return plan


def measured(path: Path, ram_gb: float, num_tokens: int) -> Figures:
    """Return what an engine does."""
    command = [sys.executable, __file__, WORKER, str(path), str(ram_gb), str(num_tokens)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment())
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def environment() -> dict[str, str]:
    """Return ours, without drafts."""
    return {**os.environ, "COLI_DRAFT": "off", "COLI_USAGE_SAVE": "0"}


def budget_for(path: Path, share: float) -> float:
    """Return a budget, in GB, in which so much of the experts fits."""
    ram = planned(path, 100.0, measure=False)["tiers"]["ram"]
    parts = ("dense", "conversations", "steps", "process")
    fixed = sum(ram[f"{part}_bytes"] for part in parts)
    return float(fixed + 1.1 * share * ram["warm_expert_bytes"]) / 1e9


def compare(fixture: Fixture, path: Path, share: float, args: argparse.Namespace) -> float:
    """Print one line per kind of step; return the largest deviation."""
    ram_gb = budget_for(path, share)
    plans, runs = [], []
    for _ in range(args.rounds):
        plans.append(planned(path, ram_gb, measure=True))
        runs.append(measured(path, ram_gb, args.tokens))
    worst = 0.0
    for kind in ("decode", "prefill"):
        estimate = median(plan[kind]["tokens_per_second"] for plan in plans)
        found = median(getattr(run, kind) for run in runs)
        worst = max(worst, abs(estimate / found - 1))
        print(
            f"{fixture.name:<6} {ram_gb:6.2f} GB  {kind:<8} {estimate:9.2f} {found:9.2f} "
            f"{100 * (estimate / found - 1):+6.1f} %",
            flush=True,
        )
    hits = median(run.hits for run in runs)
    print(f"{'':<17} hits     {100 * plans[0]['hit_rate']:8.1f}% {100 * hits:8.1f}%", flush=True)
    return worst


def make(fixture: Fixture, directory: Path) -> Path:
    """Write a model where there is none yet."""
    path = directory / fixture.name
    if not path.exists():
        command = [sys.executable, "-m", "colibri_engine", "fixture", *fixture.arguments, str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def main() -> int:
    """Compare all."""
    if sys.argv[1:2] == [WORKER]:
        run_engine(Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=160, help="that are measured")
    parser.add_argument("--require", type=float, default=1e9, metavar="SHARE")
    parser.add_argument("--keep", type=Path, help="where the models are kept")
    parser.add_argument("--only", help="one of the models")
    args = parser.parse_args()
    print(facts_text(machine_facts()))
    print("model    budget    step      planned  measured      off")
    worst = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        for fixture in FIXTURES:
            if args.only in {None, fixture.name}:
                path = make(fixture, args.keep or Path(temporary))
                worst = max(worst, *(compare(fixture, path, share, args) for share in SHARES))
    if worst > args.require:
        print(f"missed: an estimate is {100 * worst:.0f} % off", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
