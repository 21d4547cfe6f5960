"""Does a model larger than its memory stay within it, and does a long prompt read nothing twice?

    python benchmarks/memory.py MODEL --ram 6 [--slots 4] [--tokens 2000] [--prompt 512] [--group 6]

MODEL is a directory in the streaming layout. First a reply in one slot, beside it a prompt of
`--prompt` tokens in another: how often every expert is read in each step of it, and how many tokens
the reply gets. Then `--tokens` tokens in all, `--slots` replies at once: the largest resident size
after any step against the budget, and the largest ever.

`--group GB` does so in a control group of that much memory (version 1 or 2; needs the right to make
one) and tells what the group counted: it must have killed nobody. Exits 1 where memory is more than
3 % above the budget, where an expert is read twice in a step, where the reply has no token in one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine import machine, startup
from colibri_engine.config import read_config, variables
from colibri_engine.experts.record_reader import RecordReader
from colibri_protocol.messages import RequestOptions, SubmitExtended, TokenLogprobs

if TYPE_CHECKING:
    from colibri_engine.engine import Engine
    from colibri_engine.experts.records import RecordPlace
    from colibri_protocol.messages import EngineMessage

MARGIN: Final = 1.03
_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
_LINES: Final = (
    "memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control",
    "memory.peak", "memory.events",
)  # fmt: skip

reads: Counter[tuple[int, int]] = Counter()  # since the step began


def count_reads() -> None:
    """Let every read of a record be counted."""
    submit = RecordReader.submit

    def counting(
        reader: RecordReader,
        tag: int,
        place: RecordPlace,
        *rest: Any,  # noqa: ANN401 - handed on
        **named: Any,  # noqa: ANN401
    ) -> None:
        reads[place.file, place.offset] += 1
        submit(reader, tag, place, *rest, **named)

    RecordReader.submit = counting  # type: ignore[assignment, method-assign]


def ask(engine: Engine, request_id: int, prompt: int, tokens: int) -> None:
    """Submit a request with a random prompt."""
    ids = np.random.default_rng(request_id).integers(300, 8000, prompt).astype(np.int32)
    options = RequestOptions(max_tokens=tokens, ignore_eos=True, temperature=0.0, logprobs=0)
    engine.submit(SubmitExtended(request_id, -1, options, ()), ids)


def of(messages: list[EngineMessage], request_id: int) -> int:
    """Return how many tokens of a request there are among messages."""
    return sum(isinstance(m, TokenLogprobs) and m.id == request_id for m in messages)


def long_prompt(engine: Engine, size: int) -> bool:
    """Measure a prompt beside a reply; return whether all is well."""
    ask(engine, 1, 16, 40)
    while not of(engine.step(), 1):
        pass
    ask(engine, 2, size, 1)
    is_well, is_over = True, False
    while not is_over:
        reads.clear()
        messages = engine.step()
        is_over = of(messages, 2) > 0
        most, beside = max(reads.values(), default=0), of(messages, 1)
        is_well &= most <= 1 and beside >= 1
        print(
            f"a step of the prompt: {sum(reads.values())} reads, each expert at most {most} times; "
            f"{beside} tokens of the other reply"
        )
    while not engine.is_idle:
        engine.step()
    return is_well


def many_tokens(engine: Engine, slots: int, tokens: int, budget: int) -> bool:
    """Run replies at once; return whether memory stayed within the budget."""
    for slot in range(slots):
        ask(engine, 10 + slot, 64, tokens // slots)
    largest = num_tokens = num_steps = 0
    while not engine.is_idle:
        messages = engine.step()
        num_tokens += sum(of(messages, 10 + slot) for slot in range(slots))
        num_steps += 1
        largest = max(largest, machine.resident_bytes())
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
    print(
        f"{num_tokens} tokens in {num_steps} steps, {slots} slots: at most {largest / 1e9:.2f} GB "
        f"after a step, {peak / 1e9:.2f} GB ever, budget {budget / 1e9:.2f} GB "
        f"({peak / budget - 1:+.1%})"
    )
    print(json.dumps(engine.report()["experts"]))
    return peak <= MARGIN * budget


def run_in_group(argv: list[str], gigabytes: float) -> int:
    """Run this program in a control group of its own; return its exit code."""
    is_v1 = (_V1 / "memory.limit_in_bytes").exists()
    group = (_V1 if is_v1 else _V2) / f"coli-memory-{os.getpid()}"
    group.mkdir()
    try:
        limit = group / ("memory.limit_in_bytes" if is_v1 else "memory.max")
        limit.write_text(str(int(gigabytes * 1e9)))
        code = subprocess.run(
            [sys.executable, __file__, *argv, "--join", str(group)], check=False
        ).returncode
        for name in _LINES:
            if (group / name).exists():
                print(f"{name}: {' '.join((group / name).read_text().split())}")
        return code
    finally:
        group.rmdir()


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description="Memory of a model that does not fit.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--ram", type=float, help="GB; not given: what the machine leaves")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--group", type=float, help="GB")
    parser.add_argument("--join", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group is not None and options.join is None:
        return run_in_group(sys.argv[1:], options.group)
    if options.join is not None:
        (options.join / "cgroup.procs").write_text(str(os.getpid()))
    environment = variables() | {
        "SNAP": str(options.model), "COLI_CTX": "1024", "COLI_KV_SLOTS": str(options.slots),
        "COLI_KV_SAVE": "0", "COLI_USAGE_SAVE": "0", "COLI_RAM_GB": str(options.ram or 0),
    }  # fmt: skip
    count_reads()
    before = machine.memory()
    engine = startup.load(read_config((), environment)).engine
    budget = int(options.ram * 1e9) if options.ram else before.available
    print(f"available {before.available / 1e9:.2f} GB, limit {before.limit}")
    try:
        is_well = long_prompt(engine, options.prompt)
        is_well &= many_tokens(engine, options.slots, options.tokens, budget)
    finally:
        engine.close()
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
