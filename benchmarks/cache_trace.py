"""Hit rate of the experts' cache against plain least-recently-used, at equal memory.

    python benchmarks/cache_trace.py [--tokens 4000] [--layers 4] [--turns 8]
    python benchmarks/cache_trace.py --record MODEL [--tokens 40]

The first form draws a trace with a fixed seed: 256 experts of which a row chooses 8, some chosen
more often than others and a token repeating part of the choices of the one before it, both as
measured on a large mixture (`colibri_engine.fixtures.routing`). It is read twice, as one long reply
and as conversations: turns of a prompt of 256 rows and a reply. The second form records what MODEL
chooses over prompts of mixed topics. An expert counts once per step and layer, however many rows
chose it. Every cache has the same number of slots for each layer; what is read and not kept uses
none of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from colibri_engine import kernels, machine
from colibri_engine.experts.cache import LayerCache
from colibri_engine.fixtures.routing import fit_biases, fit_correlation
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.tokenizer import Tokenizer
from colibri_protocol.messages import Segment, SegmentKind

NUM_EXPERTS = 256
PER_TOKEN = 8
PROMPT_ROWS = 256
SHARES = (0.05, 0.10, 0.25, 0.50)
SEED = 11
TOPICS = (
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain how a four-stroke engine works, step by step.",
    "def merge_sort(values):\n    # complete this function\n",
    "Translate into French: The weather is fine today and we walk to the market.",
    "List the causes of the First World War and weigh them.",
    "Solve for x: 3x + 7 = 25. Show every step.",
    "Give a recipe for vegetable soup for four people.",
    "What does the second law of thermodynamics say, and why does it matter?",
    "Draft a polite letter to a landlord about a broken heater.",
    "SELECT name, COUNT(*) FROM orders -- explain and finish this query\n",
)


class Step(NamedTuple):
    """One step of one layer: the experts chosen, by how many rows each, of how many.

    In decoding also those that came next, in order.
    """

    experts: list[int]
    counts: list[int]
    num_rows: int
    near: npt.NDArray[np.int32] | None = None


Trace = list[Step]


def draw(num_tokens: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Return (num_tokens, 4 * PER_TOKEN) experts of one layer, best first: chosen and near."""
    biases = fit_biases(NUM_EXPERTS, PER_TOKEN, rng)
    correlation = fit_correlation(biases, PER_TOKEN, rng)
    biases = rng.permutation(biases)
    logits = rng.standard_normal(NUM_EXPERTS)
    ranked = np.empty((num_tokens, 4 * PER_TOKEN), np.int32)
    for row in ranked:
        scores = 1 / (1 + np.exp(-logits)) + biases
        row[:] = np.argsort(-scores)[: len(row)]
        fresh = rng.standard_normal(NUM_EXPERTS)
        logits = correlation * logits + np.sqrt(1 - correlation**2) * fresh
    return ranked


def steps_of(ranked: npt.NDArray[np.int32], sizes: list[int]) -> Trace:
    """Return the rows of one layer in steps of these sizes."""
    trace, start = [], 0
    for size in sizes:
        rows = ranked[start : start + size]
        experts, counts = np.unique(rows[:, :PER_TOKEN], return_counts=True)
        near = rows[:, PER_TOKEN:] if size == 1 else None
        trace.append(Step(experts.tolist(), counts.tolist(), size, near))
        start += size
    return trace


def record(path: Path, num_tokens: int) -> tuple[list[Trace], int]:
    """Return what each layer of a model chooses over all topics, and its number of experts."""
    kernels.set_num_threads(machine.num_usable_cores())
    with closing(open_checkpoint(path)) as checkpoint:
        tokenizer = Tokenizer(checkpoint.tokenizer)
        model = load_model(checkpoint)
    counts = model.routing_counts
    if counts is None:
        raise SystemExit(f"{path} has no experts")
    traces: list[Trace] = [[] for _ in counts]
    before = counts.copy()
    batch = kernels.Batch()
    for topic in TOPICS:
        cache, ids = (
            model.make_cache(),
            np.asarray(tokenizer.encode([Segment(SegmentKind.TEXT, topic)])),
        )
        position = 0
        for _ in range(num_tokens):
            batch.set([(cache, position, len(ids))])
            logits = model.forward(ids.astype(np.int32), batch, [len(ids) - 1])
            position += len(ids)
            now = model.routing_counts
            assert now is not None
            for trace, row in zip(traces, now - before, strict=True):
                experts = np.flatnonzero(row)
                trace.append(Step(experts.tolist(), row[experts].tolist(), len(ids)))
            before, ids = now, np.array([logits[0].argmax()])
    return traces, counts.shape[1]


def lru_hits(trace: Trace, capacity: int) -> int:
    """Return how many experts a least-recently-used cache had."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for step in trace:
        hits += sum(expert in held for expert in step.experts)
        for expert in step.experts:
            held[expert] = None
            held.move_to_end(expert)
        while len(held) > capacity:
            held.popitem(last=False)
    return hits


def our_hits(trace: Trace, num_experts: int, capacity: int) -> int:
    """Return how many experts our cache had."""
    cache = LayerCache(num_experts, capacity)
    hits = 0
    for step in trace:
        cache.note(step.experts, step.counts, step.num_rows, step.near)
        missing = [expert for expert in step.experts if expert not in cache]
        hits += len(step.experts) - len(missing)
        for expert in missing:
            cache.offer(expert, 0)
    return hits


def compare(title: str, traces: list[Trace], num_experts: int) -> None:
    """Print both hit rates at several sizes."""
    asked = sum(len(step.experts) for trace in traces for step in trace)
    print(f"\n{title}: {asked} experts asked for in {len(traces)} layers")
    print(f"{'slots':>6} {'share':>6} {'lru':>7} {'ours':>7} {'points':>7}")
    for share in SHARES:
        capacity = max(1, round(num_experts * share))
        lru = sum(lru_hits(trace, capacity) for trace in traces) / asked
        ours = sum(our_hits(trace, num_experts, capacity) for trace in traces) / asked
        print(f"{capacity:6} {share:6.0%} {lru:7.1%} {ours:7.1%} {100 * (ours - lru):+7.1f}")


def main() -> None:
    """Compare on the drawn traces, or on a recorded one."""
    parser = argparse.ArgumentParser(description="Hit rate of the experts' cache.")
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    if options.record is not None:
        traces, num_experts = record(options.record, options.tokens or 40)
        compare(f"{options.record.name} over {len(TOPICS)} topics", traces, num_experts)
        return
    num_tokens = options.tokens or 4000
    rng = np.random.default_rng(SEED)
    drawn = [draw(num_tokens, rng) for _ in range(options.layers)]
    one = [steps_of(ranked, [1] * num_tokens) for ranked in drawn]
    compare(f"one reply of {num_tokens} tokens", one, NUM_EXPERTS)
    reply = num_tokens // options.turns - PROMPT_ROWS
    if reply < 1:
        raise SystemExit(
            f"--tokens must be above {options.turns * PROMPT_ROWS} for that many turns"
        )
    sizes = ([PROMPT_ROWS] + [1] * reply) * options.turns
    turns = [steps_of(ranked, sizes) for ranked in drawn]
    compare(f"{options.turns} turns of {PROMPT_ROWS} + {reply} tokens", turns, NUM_EXPERTS)


if __name__ == "__main__":
    main()
