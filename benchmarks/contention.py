"""Decode speed while another process burns one core, against speed alone.

    python benchmarks/contention.py MODEL.gguf [--llama-bench PATH] [--rounds 3] [--require 0.6]

A parallel region whose threads all wait for each other runs at the pace of the one that the system
put aside; on two cores a single busy program can so cost far more than its share. coli's threads
take work from each other instead. Measures coli in this process, with all cores and with one
thread, and, if asked, llama-bench at its best setting; runs alone and under load alternate. Exits
1 when coli keeps less than the required share. Everything else on the machine should be quiet.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speeds import (
    WARM_UP_TOKENS,
    EngineOptions,
    LlamaBench,
    OurModel,
    TheirSetting,
    facts_text,
    machine_facts,
)
from colibri_engine import kernels, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def burning() -> Iterator[None]:
    """Keep one process busy in the meantime."""
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


def compare(name: str, decode: Callable[[], float], rounds: int) -> float:
    """Measure alone and under load in turn; print the medians, return the share that is kept."""
    alone, loaded = [], []
    for _ in range(rounds):
        alone.append(decode())
        with burning():
            loaded.append(decode())
    share = median(loaded) / median(alone)
    print(
        f"{name:42} {median(alone):8.1f} alone {median(loaded):8.1f} under load "
        f"{100 * share:6.1f} %   {' '.join(f'{v:.0f}' for v in loaded)}"
    )
    return share


def main() -> int:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--llama-bench", type=Path, help="path of the program")
    parser.add_argument("--rounds", type=int, default=3, help="alternating runs (default 3)")
    parser.add_argument("--require", type=float, default=0.0, metavar="SHARE")
    args = parser.parse_args()
    cores = machine.num_usable_cores()
    print(facts_text(machine_facts() | {"model": args.model.name}))
    model = OurModel(args.model, EngineOptions())

    def ours(threads: int) -> float:
        kernels.set_num_threads(threads)
        model.decode(WARM_UP_TOKENS)
        return model.decode()

    share = compare(f"coli, {cores} threads", lambda: ours(cores), args.rounds)
    compare("coli, 1 thread", lambda: ours(1), args.rounds)
    kernels.set_num_threads(1)
    if args.llama_bench is not None:
        theirs = LlamaBench(args.llama_bench, args.model, repeats=1)
        theirs.choose_settings((1, cores))
        settings = {theirs.decode_setting}
        settings |= {TheirSetting(n, theirs.decode_setting.flash) for n in (1, cores)}
        for setting in sorted(settings, key=str, reverse=True):
            theirs.decode_setting = setting
            compare(f"llama.cpp, {setting}", theirs.decode, args.rounds)
    if share < args.require:
        print(f"missed: {share:.3f} < {args.require}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
