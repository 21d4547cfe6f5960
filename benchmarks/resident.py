"""How near a mixture in memory comes to what memory and kernels allow.

    python benchmarks/resident.py MODEL [--prompt 268] [--require-decode 0.6]
        [--require-prefill 0.4] [--numerics default] [--threads N]

MODEL is a directory, e.g. of `python -m colibri_engine fixture --geometry bench`. Decode: tokens
per second times the bytes of weights that one token reads (of the routed experts those it
chooses, of the embedding none), as a share of the best of several reads of 2 GB by as many
threads, which alternate with it. Prefill: the seconds the same kernels need for as many
multiply-adds at their best, measured with one large matrix of each format, as a share of the
seconds it took. Exits 1 below a required share.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.bandwidth import Reader
from benchmarks.speeds import WARM_UP_TOKENS, EngineOptions, OurModel, facts_text, machine_facts
from colibri_engine import kernels
from colibri_engine.kernels import Linear, Rows, linear
from colibri_engine.layers.weights import pack
from colibri_engine.loader.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUNDS = 7
TOKENS = 96
PEAK_OUTPUTS = 4096  # of the matrix the peak is measured with


@dataclass
class Work:
    """What one token costs.

    Args:
        nbytes: Packed weights read by decoding it.
        multiplies: Multiply-adds of a prompt token by number format, the head left out.
        samples: A matrix of each format, as stored.
    """

    nbytes: float = 0.0
    multiplies: dict[str, float] = field(default_factory=dict)
    samples: dict[str, str] = field(default_factory=dict)


def work_of(path: Path) -> Work:
    """Add up the matrices of a checkpoint."""
    work = Work()
    with closing(open_checkpoint(path)) as checkpoint:
        config = checkpoint.config
        chosen = config.get("num_experts_per_tok", 0) / config.get("n_routed_experts", 1)
        for name in checkpoint.names():
            shape = checkpoint.shape(name)
            if len(shape) != 2 or name == "model.embed_tokens.weight" or is_draft(name, config):
                continue
            share = chosen if ".experts." in name else 1.0
            kind = checkpoint.format_name(name)
            work.nbytes += share * pack(checkpoint.tensor(name)).nbytes
            if not name.startswith("lm_head"):
                work.multiplies[kind] = work.multiplies.get(kind, 0.0) + share * np.prod(shape)
                known = work.samples.setdefault(kind, name)
                if np.prod(shape) > np.prod(checkpoint.shape(known)):
                    work.samples[kind] = name
    return work


def is_draft(name: str, config: Mapping[str, Any]) -> bool:
    """Tell whether a tensor belongs to the draft layer, which plain decoding leaves out."""
    return (
        name.startswith("model.layers.") and int(name.split(".")[2]) >= config["num_hidden_layers"]
    )


def peak_rate(path: Path, name: str, num_rows: int, numerics: str) -> float:
    """Return multiply-adds per second of a layer that repeats one matrix to a large one."""
    with closing(open_checkpoint(path)) as checkpoint:
        matrix = pack(checkpoint.tensor(name))
        num_outputs, num_inputs = checkpoint.shape(name)
    copies = max(1, PEAK_OUTPUTS // num_outputs)
    layer = Linear([matrix] * copies, None, numerics)
    x, out = Rows(num_rows, num_inputs), Rows(num_rows, num_outputs * copies)
    x.rows = num_rows
    x.array[:] = np.random.default_rng(1).standard_normal((num_rows, num_inputs))
    best = float("inf")
    for _ in range(7):
        begin = time.perf_counter()
        linear(x, layer, out)
        best = min(best, time.perf_counter() - begin)
    return num_rows * num_inputs * num_outputs * copies / best


def main() -> int:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="model directory")
    parser.add_argument("--prompt", type=int, default=268, help="prompt tokens")
    parser.add_argument("--require-decode", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--require-prefill", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--numerics", default="default", choices=("default", "fast", "float"))
    parser.add_argument("--threads", type=int, help="threads (default: coli's own choice)")
    args = parser.parse_args()
    work = work_of(args.model)
    model = OurModel(args.model, EngineOptions(args.numerics, None, args.threads))
    model.decode(WARM_UP_TOKENS)
    reads: list[float] = []
    decodes: list[float] = []
    prefills: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        reader = Reader(Path(directory), kernels.num_threads())
        for _ in range(ROUNDS):
            reads.append(reader.read())
            decodes.append(model.decode(TOKENS))
            prefills.append(model.prefill(args.prompt))
        reader.close()
    peaks = {
        kind: peak_rate(args.model, name, args.prompt, args.numerics)
        for kind, name in work.samples.items()
    }
    print(facts_text(machine_facts() | {"isa": kernels.active_isa()}))
    rate = median(decodes) * work.nbytes / 1e9
    decode_share = rate / max(reads)
    print(f"read    {max(reads):.1f} GB/s, the best of {' '.join(f'{r:.1f}' for r in reads)}")
    print(f"decode  {median(decodes):.1f} tokens/s of {' '.join(f'{d:.0f}' for d in decodes)}")
    print(f"        {work.nbytes / 1e6:.1f} MB per token: {rate:.1f} GB/s, ", end="")
    print(f"{100 * decode_share:.1f} % of the limit")
    ideal = sum(count / peaks[kind] for kind, count in work.multiplies.items())
    prefill_share = median(prefills) * ideal
    print(f"peak    {', '.join(f'{k} {v / 1e9:.0f}' for k, v in peaks.items())} G multiply-adds/s")
    print(f"prefill {median(prefills):.0f} tokens/s of {' '.join(f'{p:.0f}' for p in prefills)}")
    print(f"        {100 * prefill_share:.1f} % of the {1 / ideal:.0f} at the peak")
    missed = decode_share < args.require_decode or prefill_share < args.require_prefill
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
