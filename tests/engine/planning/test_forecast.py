"""Times of a step against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colibri_engine.planning.cases import with_speeds
from colibri_engine.planning.forecast import (
    CALLS_PER_LAYER,
    CALLS_PER_STEP,
    CALLS_PER_STREAMED_LAYER,
    READ_CPU_S,
    Disk,
    Experts,
    Machine,
    Work,
    decode,
    prefill,
)
from colibri_engine.planning.rates import Rate

# 10 GB/s of 4-bit weights, 20 of floats; 100 and 50 G multiply-adds; disk 1 GB/s.
MACHINE = Machine(
    kinds={"int4": Rate(10e9, 100e9, 8e9), "f32": Rate(20e9, 50e9, 15e9)},
    experts=Rate(10e9, 100e9, 8e9),
    call_s=1e-6,
    disk=Disk(1e9, 0.001),
)
# 4 layers, of which 2 have 16 experts of 10 MB, 2 per token: 1 ms each from memory, 10 from disk.
EXPERTS = Experts(2, 16, 2, 10_000_000, 20_000_000, 4)
WORK = Work(
    num_layers=4,
    token_bytes={"int4": 500_000_000, "f32": 40_000_000},
    token_weights={"int4": 1_000_000_000, "f32": 10_000_000},
    position_macs=1_000_000,
    experts=(EXPERTS,),
    hit_rate=0.5,
    distinct={8: 0.75},
)


def test_a_decoded_token_by_hand() -> None:
    found = decode(WORK, MACHINE, num_positions=100)
    assert found.weights_s == pytest.approx(0.05 + 0.002)
    assert found.experts_s == pytest.approx(2 * 2 * 0.001)
    assert found.attention_s == pytest.approx(100 * 1e6 / 50e9)
    calls = CALLS_PER_STEP + 4 * CALLS_PER_LAYER + 2 * CALLS_PER_STREAMED_LAYER
    assert found.calls_s == pytest.approx(calls * 1e-6 + 20_000_000 * READ_CPU_S)
    # One missing in half of the layers' steps: 1 + 10 ms; both in a quarter: 1 + 20 ms.
    assert found.read_s == pytest.approx(2 * (0.5 * 0.011 + 0.25 * 0.021))
    # Hidden: of one, while the other is computed (1 ms), but then itself has 1 ms to go after
    # the reads: 11 + 1 - 2 ms are waited for; of both: 21 + 1 - 2.
    waits = 2 * (0.5 * 0.010 + 0.25 * 0.020)
    assert found.read_s - found.hidden_s == pytest.approx(waits)
    assert found.missed_bytes == pytest.approx(2 * 2 * 10_000_000 * 0.5)
    assert found.seconds == pytest.approx(found.compute_s + waits)
    assert found.tokens_per_s == pytest.approx(1 / found.seconds)
    assert found.bottleneck == "memory"


def test_a_step_of_a_prompt_by_hand() -> None:
    found = prefill(WORK, MACHINE, num_rows=8)
    assert found.weights_s == pytest.approx(8 * (1e9 / 100e9 + 1e7 / 50e9))
    layer_s = 1.25 * 8 * 2 * 20e6 / 100e9  # as they arrive, a quarter more than in one call
    assert found.experts_s == pytest.approx(2 * layer_s)
    # 12 of 16 experts are asked for and 4 are in memory: 8 are read, 81 ms for each layer.
    assert found.read_s == pytest.approx(2 * 0.081)
    assert found.missed_bytes == pytest.approx(2 * 8 * 10_000_000)
    waits = 2 * (0.081 + layer_s / 12 - layer_s)
    assert found.read_s - found.hidden_s == pytest.approx(waits)
    assert found.tokens_per_s == pytest.approx(8 / found.seconds)


def test_nothing_is_read_when_everything_is_in_memory() -> None:
    work = replace(WORK, hit_rate=1.0, experts=(EXPERTS._replace(capacity=16),))
    for found in (decode(work, MACHINE, 0), prefill(work, MACHINE, 8)):
        assert (found.read_s, found.hidden_s, found.missed_bytes) == (0.0, 0.0, 0.0)
        assert found.hidden_share == 1.0


def test_lookahead_begins_earlier_and_reads_some_in_vain() -> None:
    plain, ahead = decode(WORK, MACHINE, 0), decode(replace(WORK, looks_ahead=True), MACHINE, 0)
    assert ahead.compute_s == plain.compute_s
    calls_s = plain.calls_s - 20_000_000 * READ_CPU_S
    between = (plain.weights_s + plain.attention_s + calls_s) / 4  # 13 ms and more
    # Three in a hundred more are read: 1 + 10.3 and 1 + 20.6 ms, the first of it before the layer.
    reads = [0.0113, 0.0216]
    waits = [max(0.0, max(0.002, max(0.0, read - between) + 0.001) - 0.002) for read in reads]
    assert waits[0] == 0.0
    assert waits[1] > 0.0
    hidden = 2 * (0.5 * (reads[0] - waits[0]) + 0.25 * (reads[1] - waits[1]))
    assert ahead.hidden_s == pytest.approx(hidden)
    # Three fifths of two guesses by score, 12 ms, fit into the end and the beginning of a token.
    assert ahead.read_s == pytest.approx(2 * (0.5 * 0.0113 + 0.25 * 0.0216))
    slow = replace(MACHINE, disk=Disk(1e8))
    found = decode(replace(WORK, looks_ahead=True), slow, 0)
    vain = 0.06 - 2 * between - CALLS_PER_STEP * 1e-6
    assert found.read_s == pytest.approx(2 * (0.5 * 0.103 + 0.25 * 0.206) + vain)


def test_a_slow_disk_is_what_limits() -> None:
    slow = replace(MACHINE, disk=Disk(1e7))
    assert decode(WORK, slow, 0).bottleneck == "disk"


def test_another_disk_another_memory_other_threads() -> None:
    faster = with_speeds(MACHINE, threads=(2, 2), memory=None, disk=4e9)
    assert faster.disk == Disk(4e9, 0.001)
    assert faster.kinds == MACHINE.kinds
    # Memory of 100 GB/s and 4 threads: cores are what limits, 8 GB/s each.
    more = with_speeds(MACHINE, threads=(2, 4), memory=100e9, disk=None)
    assert more.kinds["int4"] == Rate(32e9, 200e9, 8e9)
    assert more.experts == Rate(32e9, 200e9, 8e9)
    # Memory of 25 GB/s: it is what limits.
    less = with_speeds(MACHINE, threads=(2, 4), memory=25e9, disk=None)
    assert less.kinds["int4"].decode == 25e9
    # More threads alone get no more than the best that was seen of this memory.
    same = with_speeds(MACHINE, threads=(2, 8), memory=None, disk=None)
    assert same.kinds["int4"].decode == 20e9
