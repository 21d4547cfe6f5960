"""What `coli plan` says of GLM-5.2 on machines of five classes.

    python benchmarks/scaling.py [--prompt-chunk 256] [--ctx 8192]

Headers of all 78 layers are written, in files of the real size that are holes but for them, and
planned with `--what-if`: kernels as measured here for each core, memory and disk as of the class.
The first column is this machine, with the disk's rate measured beside the headers. Prints a table
for docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.speeds import facts_text, machine_facts
from colibri_engine.fixtures.geometry import build_config
from colibri_engine.fixtures.glm import GlmFixture
from colibri_engine.fixtures.maker import Pools
from colibri_engine.fixtures.pools import Pool, weight_format
from colibri_engine.fixtures.writing import _contents, _write_texts
from colibri_engine.loader.shard_writer import file_header
from colibri_engine.loader.stream_layout import RECORD_ALIGNMENT

DISK_READ = "20M"
DISK_DEPTH = "8"


class MachineClass(NamedTuple):
    """A machine: cores, GB that the engine may take, GB/s of memory and of disk; None: this one."""

    name: str
    cores: int | None
    ram: int | None
    memory: int | None
    disk: float | None


CLASSES = (
    MachineClass("this machine", None, 20, None, None),
    MachineClass("laptop", 8, 28, 60, 3.5),
    MachineClass("desktop", 16, 58, 80, 7),
    MachineClass("workstation", 32, 240, 200, 14),
    MachineClass("server", 64, 500, 350, 14),
)


def write_headers(directory: Path, num_layers: int, num_experts: int) -> None:
    """Write a model whose files have their real size, and nothing but headers in them."""
    config = build_config("glm-5.2", num_layers, num_experts)
    rng = np.random.default_rng(0)
    pools = {name: Pool(weight_format(name), rng) for name in ("int4-g64", "int8")}
    fixture = GlmFixture(config, Pools(pools["int4-g64"], pools["int4-g64"], pools["int8"]), rng)
    for place, items in enumerate(fixture.files()):
        contents = _contents(items)
        header = file_header(contents.tensors(), contents.metadata(), RECORD_ALIGNMENT, None)
        path = directory / f"out-{place:05d}.safetensors"
        path.write_bytes(header)
        os.truncate(path, len(header) + sum(tensor.nbytes for tensor in contents.tensors()))
    _write_texts(directory, config)


def disk_rate(directory: Path) -> float:
    """Return GB/s of this disk for records, as `coli bench disk` measures it."""
    command = [sys.executable, "-m", "colibri_cli", "bench", "disk", str(directory), "--json"]
    command += ["--read", DISK_READ, "--depth", DISK_DEPTH]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    rates = json.loads(done.stdout)["rates"]
    return float(max(r["bytes_per_s"] for r in rates if r["pattern"] == "random")) / 1e9


def plans(path: Path, disk: float, ctx: int, chunk: int) -> dict[str, Any]:
    """Return the report of `coli plan` with a plan for each class."""
    command = [sys.executable, "-m", "colibri_cli", "plan", str(path), "--json", "--ctx", str(ctx)]
    for machine in CLASSES:
        given = {"threads": machine.cores, "ram": machine.ram, "memory": machine.memory}
        parts = [f"{name}={value}" for name, value in given.items() if value is not None]
        parts.append(f"disk={machine.disk or round(disk, 2)}")
        command += ["--what-if", ",".join([*parts, f"chunk={chunk}"])]
    environment = {**os.environ, "COLI_DRAFT": "off"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def row(machine: MachineClass, plan: dict[str, Any], report: dict[str, Any], disk: float) -> str:
    """Return one line of the table."""
    here = report["machine"]
    cores = machine.cores or here["threads"]
    memory = machine.memory or round(max(here["rates"]["decode_bytes_per_s"].values()) / 1e9)
    rate = machine.disk or disk
    if not plan["runs"]:
        reason = f"does not fit: {plan['missing_bytes'] / 1e9:.1f} GB are missing"
        return f"| {machine.name} | {cores} | {memory} | {rate:.1f} | {reason} |"
    ram = plan["tiers"]["ram"]
    terms = plan["decode"]["terms"]
    waits = terms["read_s"] - terms["hidden_s"]
    cells = [
        machine.name, cores, memory, f"{rate:.1f}", f"{ram['budget_bytes'] / 1e9:.0f}",
        ram["cache_slots_per_layer"], f"{plan['hit_rate']:.0%}",
        f"{plan['decode']['missed_bytes'] / 1e9:.2f}", f"{1e3 * terms['weights_s']:.0f}",
        f"{1e3 * terms['experts_s']:.0f}", f"{1e3 * waits:.0f}",
        f"{plan['decode']['tokens_per_second']:.2f}",
        f"{plan['prefill']['tokens_per_second']:.1f}", plan["bottleneck"],
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--ctx", type=int, default=8192)
    parser.add_argument("--prompt-chunk", type=int, default=256)
    parser.add_argument("--layers", type=int, default=78)
    parser.add_argument("--experts", type=int, default=256)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_headers(directory, args.layers, args.experts)
        with tempfile.TemporaryDirectory(dir=directory.parent) as empty:
            disk = disk_rate(Path(empty))
        report = plans(directory, disk, args.ctx, args.prompt_chunk)
    print(facts_text(machine_facts()))
    rates = report["machine"]["rates"]
    print(f"rates   {json.dumps(rates)}")
    print(f"model   {json.dumps(report['model'])}\n")
    titles = [
        "class", "cores", "memory GB/s", "disk GB/s", "budget GB", "slots", "hits", "GB read",
        "weights ms", "experts ms", "waits ms", "tok/s", "prefill tok/s", "limited by",
    ]  # fmt: skip
    print(f"| {' | '.join(titles)} |")
    print(f"|{'---|' * len(titles)}")
    for machine, plan in zip(CLASSES, report["plans"][1:], strict=True):
        print(row(machine, plan, report, disk))
    return 0


if __name__ == "__main__":
    sys.exit(main())
