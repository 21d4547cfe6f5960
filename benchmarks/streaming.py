"""How near reading experts comes to what disk and memory allow.

    python benchmarks/streaming.py MODEL --ram 6 [--prompt 64] [--tokens 32] [--require-cold 0.85]
        [--require-warm 1.3]
    python benchmarks/streaming.py --fixture DIR [--experts 64] --ram 6 ...

MODEL is a directory in the streaming layout; `--fixture` writes a random one of the geometry of
GLM-5.2 with four layers of experts (int4 in groups of 64), measures it and leaves it there. All
reads are direct, so the page cache holds nothing of the experts; wall-clock time counts.

    cold    bytes missed, over the time without attention and head, against the disk alone with as
            many reads of an expert at a time as a token needs: while few experts are in memory
    warm    time per token against the longer of two: the disk for the bytes missed, and the same
            step with every expert in memory; where at least half of the experts asked for are there

The rate of the disk is measured before and after each budget, and the faster counts. Exits 1 where
a figure misses what is required of it.
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


def write_fixture(directory: Path, num_experts: int) -> None:
    """Write the random model, unless it is there."""
    if (directory / "config.json").exists():
        return
    subprocess.run(
        [
            *(sys.executable, "-m", "colibri_engine", "fixture", "--geometry", "glm-5.2"),
            *("--layers", str(LAYERS), "--experts", str(num_experts), "--format", "int4-g64"),
            str(directory),
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
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def all_in_memory(body: dict[str, Any]) -> float:
    """Return a budget in GB that holds every expert."""
    model = body["model"]
    experts = model["num_layers"] * model["num_experts"] * model["record_bytes"]
    return float(round(1.1 * (model["resident_bytes"] + 2 * experts) / 1e9 + 2, 1))


def main() -> None:
    """Measure one budget, and the same with everything in memory."""
    parser = argparse.ArgumentParser(description="Streaming against disk and memory.")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--fixture", type=Path)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--ram", type=float, required=True, help="GB")
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
    body = measure(model, [options.ram], options.prompt, options.tokens)
    resident = measure(model, [all_in_memory(body)], options.prompt, options.tokens)["phases"][-1]
    in_memory_s = resident["seconds"] / resident["rows"]
    print(f"every expert in memory: {in_memory_s * 1e3:.0f} ms per token")
    missed = False
    for phase in body["phases"][1:]:
        disk_s = phase["missed_bytes"] / phase["rows"] / phase["disk_bytes_per_s"]
        token_s = phase["seconds"] / phase["rows"]
        cold = phase["disk_percent"] / 100
        warm = token_s / max(disk_s, in_memory_s)
        print(
            f"{phase['phase']}: {token_s * 1e3:.0f} ms per token, {phase['slots']} slots, hits "
            f"{phase['hit_percent']:.1f} %, {phase['missed_bytes'] / phase['rows'] / 1e6:.0f} MB "
            f"missed per token ({phase['bytes_per_token'] / 1e6:.0f} read) = "
            f"{disk_s * 1e3:.0f} ms of disk at {phase['disk_bytes_per_s'] / 1e9:.2f} GB/s, "
            f"hidden {phase['hidden_percent']:.0f} %; cold {cold:.0%}, warm {warm:.2f}"
        )
        if phase["hit_percent"] < WARM_HITS:
            missed |= cold < options.require_cold
        elif options.require_warm:
            missed |= warm > options.require_warm
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
