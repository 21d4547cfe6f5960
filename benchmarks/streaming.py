"""How near reading experts comes to what disk and memory allow.

    python benchmarks/streaming.py MODEL --ram 6 [--prompt 64] [--tokens 32] [--require-cold 0.85]
        [--require-warm 1.3]
    python benchmarks/streaming.py --fixture DIR [--experts 64] --ram 6,4.5 ...

MODEL is a directory in the streaming layout; `--fixture` writes a random one of the geometry of
GLM-5.2 with four layers of experts (int4 in groups of 64), measures it and leaves it there. All
reads are direct, so the page cache holds nothing of the experts; wall-clock time counts.

    cold    bytes missed, over the time without attention and head, against the disk alone with as
            many reads of an expert at a time as a token needs: while few experts are in memory
    warm    time per token against the longer of two: the disk for the bytes missed, and a step with
            all its experts in memory; where at least half of the experts asked for are there

A step with all its experts in memory is the last token's, repeated. The rate of the disk is
measured before and after each budget, and the faster counts. Exits 1 where a figure misses what is
required of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WARM_HITS = 50.0  # percent
LAYERS = 7  # three of them dense
PHASES = 4  # of each budget: prompt, two of decoding, one token repeated


def write_fixture(directory: Path, num_experts: int) -> None:
    """Write the random model, unless it is there."""
    if (directory / "config.json").exists():
        return
    subprocess.run(
        [
            *(sys.executable, "-m", "colibri_engine", "fixture", "--geometry", "glm-5.2"),
            *("--layers", str(LAYERS), "--experts", str(num_experts), "--format", "int4-g64"),
            *("--no-draft", str(directory)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def measure(model: Path, budgets: list[float], prompt: int, tokens: int) -> dict[str, Any]:
    """Return what `coli bench stream` says."""
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "colibri_cli", "bench", "stream", "--json"),
            *("--model", str(model), "--ctx", "1024", "--quiet"),
            *("--budgets", ",".join(map(str, budgets))),
            *("--prompt", str(prompt), "--generate", str(tokens)),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def tell(phase: dict[str, Any], in_memory_s: float) -> tuple[float, float]:
    """Print one phase of decoding; return how cold and how warm reading compares."""
    disk_s = phase["missed_bytes"] / phase["rows"] / phase["disk_bytes_per_s"]
    token_s = phase["seconds"] / phase["rows"]
    cold = phase["disk_percent"] / 100
    warm = token_s / max(disk_s, in_memory_s)
    names = ("wait", "matmul", "attention", "dense", "lm_head")
    rest = ", ".join(f"{name} {phase[f'{name}_s'] / phase['rows'] * 1e3:.0f}" for name in names)
    print(
        f"{phase['ram_bytes'] / 1e9:g} GB, {phase['phase']}: {token_s * 1e3:.0f} ms per token "
        f"({rest}), {phase['slots']} slots, hits "
        f"{phase['hit_percent']:.1f} %, {phase['missed_bytes'] / phase['rows'] / 1e6:.0f} MB "
        f"missed per token ({phase['bytes_per_token'] / 1e6:.0f} read) = "
        f"{disk_s * 1e3:.0f} ms of disk at {phase['disk_bytes_per_s'] / 1e9:.2f} GB/s, "
        f"hidden {phase['hidden_percent']:.0f} %; cold {cold:.0%}, warm {warm:.2f}"
    )
    return cold, warm


def main() -> None:
    """Measure every budget."""
    parser = argparse.ArgumentParser(description="Streaming against disk and memory.")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--fixture", type=Path)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--ram", required=True, help="GB, with commas")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--require-cold", type=float, default=0.0)
    parser.add_argument("--require-warm", type=float, default=0.0)
    options = parser.parse_args()
    model = options.fixture or options.model
    if model is None:
        parser.error("name a model, or a directory for a --fixture")
    if options.fixture is not None:
        write_fixture(options.fixture, options.experts)
    budgets = [float(word) for word in options.ram.split(",")]
    body = measure(model, budgets, options.prompt, options.tokens)
    phases = body["phases"]
    missed = False
    for first in range(0, len(phases), PHASES):
        _, *decoding, same = phases[first : first + PHASES]
        in_memory_s = same["seconds"] / same["rows"]
        print(
            f"{same['ram_bytes'] / 1e9:g} GB, {same['hit_percent']:.0f} % in memory: "
            f"{in_memory_s * 1e3:.0f} ms per token"
        )
        for phase in decoding:
            cold, warm = tell(phase, in_memory_s)
            if phase["hit_percent"] < WARM_HITS:
                missed |= cold < options.require_cold
            elif options.require_warm:
                missed |= warm > options.require_warm
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
