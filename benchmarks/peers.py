"""Decode and prefill speed of coli and of llama.cpp, in alternating runs on the same files.

    python benchmarks/peers.py --llama-bench PATH MODEL.gguf [MODEL.gguf ...]
        [--rounds 5] [--numerics default] [--isa avx512] [--threads 2] [--in-process] [--json]
        [--require-decode 2] [--require-prefill 1.5]

coli runs in its engine process as users run it (`coli bench`), or with --in-process as bare
forward passes in this one. llama-bench runs at whichever of one thread or all cores, with flash
attention off or on, is fastest for each task; a first round finds out. Prints the medians and
their ratios. Exits 1 when a required ratio is missed. Other load on the machine disturbs both;
`chrt -f 50` in front keeps it away.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speeds import (
    EngineOptions,
    LlamaBench,
    OurModel,
    OurProcess,
    Speeds,
    facts_text,
    machine_facts,
)
from colibri_engine import machine

TASKS = ("decode", "prefill")


def compare(model: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds on one model; return medians, ratios and every figure."""
    options = EngineOptions(args.numerics, args.isa, args.threads)
    ours = OurModel(model, options) if args.in_process else OurProcess(model, options)
    theirs = LlamaBench(args.llama_bench, model)
    theirs.choose_settings(tuple(sorted({1, machine.num_usable_cores()})))
    found: dict[str, list[Speeds]] = {"ours": [], "theirs": []}
    for _ in range(args.rounds):
        found["ours"].append(ours.measure())
        found["theirs"].append(theirs.measure())
    result: dict[str, Any] = {"model": model.name, "llama_bench_build": theirs.build}
    for task in TASKS:
        figures = {who: [getattr(s, task) for s in runs] for who, runs in found.items()}
        result[task] = {
            **{who: median(values) for who, values in figures.items()},
            "ratio": median(figures["ours"]) / median(figures["theirs"]),
            "their_setting": str(getattr(theirs, f"{task}_setting")),
            "rounds": figures,
        }
    return result


def show(result: dict[str, Any]) -> None:
    """Print one model's table."""
    print(f"\n{result['model']}  (llama.cpp build {result['llama_bench_build']})")
    print("  tokens/s      coli   llama.cpp   ratio   llama.cpp at")
    for task in TASKS:
        row = result[task]
        print(
            f"  {task:8} {row['ours']:9.1f} {row['theirs']:11.1f} {row['ratio']:7.2f}   "
            f"{row['their_setting']}"
        )
        for who, values in row["rounds"].items():
            print(f"    {who:6}  {' '.join(f'{value:.0f}' for value in values)}")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="GGUF files")
    parser.add_argument("--llama-bench", type=Path, required=True, help="path of the program")
    parser.add_argument("--rounds", type=int, default=5, help="alternating runs (default 5)")
    parser.add_argument("--numerics", default="default", choices=("default", "fast", "float"))
    parser.add_argument("--isa", help="instruction set that coli is held to")
    parser.add_argument("--threads", type=int, help="threads of coli (default: its own choice)")
    parser.add_argument("--in-process", action="store_true", help="bare forward passes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    for task in TASKS:
        parser.add_argument(f"--require-{task}", type=float, default=0, metavar="RATIO")
    return parser.parse_args()


def main() -> int:
    """Compare all models."""
    args = parse_arguments()
    how = "in process" if args.in_process else "engine process"
    facts = machine_facts() | {"run": f"{args.numerics}, {args.isa or 'best'} kernels, {how}"}
    if not args.json:
        print(facts_text(facts))
    results = []
    for model in args.models:
        results.append(compare(model, args))
        if not args.json:
            show(results[-1])
    if args.json:
        print(json.dumps({"facts": facts, "results": results}, indent=2))
    required = {"decode": args.require_decode, "prefill": args.require_prefill}
    missed = [
        f"{result['model']}: {task} {result[task]['ratio']:.2f} < {required[task]}"
        for result in results
        for task in TASKS
        if result[task]["ratio"] < required[task]
    ]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
