"""Drafts where they pay, none where they do not, and a second chance after that changes.

A simulated machine: a step takes a time by its rows, guesses come true by chance. No clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.sampling import Sampler, SamplingParams
from colibri_engine.sequence import Sequence
from colibri_engine.speculation.cost import (
    PLAIN_EVERY,
    RETRY_AFTER,
    Acceptance,
    CostPolicy,
    FixedDepth,
    Policy,
    StepTimes,
)
from colibri_engine.speculation.reads import MeasuredReads

if TYPE_CHECKING:
    from collections.abc import Callable


def sequence() -> Sequence:
    prompt = np.zeros(1, np.int32)
    return Sequence(
        request_id=1, slot_idx=0, prompt=prompt, stop_ids=frozenset(), max_new_tokens=9,
        sampler=Sampler(SamplingParams(seed=1), 10, prompt), num_logprobs=None, num_reused=0,
        accepted_at=0.0, baseline={},
    )  # fmt: skip


@dataclass
class Machine:
    """Replies on a machine whose steps take `seconds(rows)`.

    Args:
        seconds: Computing time of a step.
        chance: That a guess comes true if the one before did.
        waited: Further time it waits for experts.
        on_step: Told the rows of each step.
        guess_s: Seconds a guess takes.
    """

    seconds: Callable[[int], float]
    chance: float
    waited: Callable[[int], float] = lambda _: 0.0
    on_step: Callable[[int], None] = lambda _: None
    guess_s: float = 0.0
    limit: int = 8
    num_replies: int = 1
    kind: str = "ngram 3"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(4))
    depths: list[int] = field(default_factory=list)

    def run(self, policy: Policy, num_steps: int) -> float:
        """Return tokens per second."""
        replies = [sequence() for _ in range(self.num_replies)]
        tokens = elapsed = 0.0
        for _ in range(num_steps):
            policy.begin_step(len(replies))
            rows, drafts = len(replies), []
            for reply in replies:
                depth = self.limit
                if self.guess_s:
                    depth = policy.plan(reply, self.kind, depth, self.guess_s)
                    elapsed += depth * self.guess_s
                if depth:
                    depth = policy.choose(reply, self.kind, depth)
                drafts.append((reply, depth))
                rows += depth
                self.depths.append(depth)
            noise = float(self.rng.uniform(0.95, 1.05))
            step, wait = noise * self.seconds(rows), self.waited(rows)
            elapsed += step + wait
            tokens += len(replies)
            policy.begin_forward()
            self.on_step(rows)
            policy.observe_step(rows, step + wait)
            for reply, depth in drafts:
                right = self.rng.random(depth) < self.chance
                accepted = depth if right.all() else int(right.argmin())
                tokens += accepted
                if depth:
                    policy.learn(reply, self.kind, depth, accepted)
        return tokens / elapsed


MACHINES = {
    "memory-bound, sure": Machine(lambda rows: 0.1 + 0.002 * rows, 0.9),
    "memory-bound, unsure": Machine(lambda rows: 0.1 + 0.002 * rows, 0.3),
    "compute-bound, sure": Machine(lambda rows: 0.02 + 0.08 * rows, 0.9),
    "compute-bound, unsure": Machine(lambda rows: 0.02 + 0.08 * rows, 0.4),
    "in between": Machine(lambda rows: 0.08 + 0.02 * rows, 0.6),
    "guesses that cost": Machine(lambda rows: 0.1 + 0.01 * rows, 0.7, guess_s=0.02),
    "guesses that cost too much": Machine(lambda rows: 0.1 + 0.01 * rows, 0.7, guess_s=0.2),
    "four replies": Machine(lambda rows: 0.1 + 0.01 * rows, 0.7, num_replies=4),
}


def without_history(machine: Machine) -> Machine:
    return Machine(**{
        name: getattr(machine, name)
        for name in ("seconds", "chance", "waited", "guess_s", "limit", "num_replies", "kind")
    })  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_it_is_nearly_as_fast_as_the_best_fixed_depth(name: str) -> None:
    machine = MACHINES[name]
    fixed = [without_history(machine).run(FixedDepth(depth), 3000) for depth in range(9)]
    chosen = without_history(machine).run(CostPolicy(), 3000)
    assert chosen > 0.95 * max(fixed)


def test_drafts_stop_where_they_cost_more_than_they_bring() -> None:
    machine = Machine(lambda rows: 0.02 + 0.08 * rows, 0.4)
    machine.run(CostPolicy(), 1000)
    late = machine.depths[500:]
    assert 0 < sum(late) <= len(late) / RETRY_AFTER + 1  # but they are tried now and then
    assert max(late) == 1


@pytest.mark.parametrize("name", ["it comes true again", "rows become cheap"])
def test_drafts_come_back_when_they_pay_again(name: str) -> None:
    machine = Machine(lambda rows: 0.02 + 0.08 * rows, 0.3)
    policy = CostPolicy()
    machine.run(policy, 2000)
    assert sum(machine.depths[-200:]) < 10
    machine.chance = 0.95
    if name == "rows become cheap":
        machine.seconds = lambda rows: 0.1 + 0.001 * rows
    machine.depths.clear()
    machine.run(policy, 2500)
    assert np.mean(machine.depths[-500:]) > (2 if name == "rows become cheap" else 0.9)


def test_one_disturbed_step_does_not_end_drafting() -> None:
    machine = Machine(lambda rows: 0.1 + 0.002 * rows, 0.9)
    policy = CostPolicy()
    machine.run(policy, 300)
    policy.observe_step(9, 60.0)
    machine.depths.clear()
    machine.run(policy, 300)
    assert np.mean(machine.depths[-100:]) > 4


def test_a_kind_that_fails_does_not_cost_another_its_turn() -> None:
    policy, reply, depth = CostPolicy(), sequence(), 0
    for _ in range(300):
        policy.begin_step(1)
        depth = policy.choose(reply, "ngram 2", 4)
        policy.observe_step(1 + depth, 0.1 + 0.03 * depth)
        if depth:
            policy.learn(reply, "ngram 2", depth, 0)
    assert depth == 0
    policy.begin_step(1)
    assert policy.choose(reply, "ngram 16", 4) == 4


def test_a_step_now_and_then_goes_without() -> None:
    machine = Machine(lambda rows: 0.1 + 0.001 * rows, 0.95)
    machine.run(CostPolicy(), 10 * PLAIN_EVERY)
    assert 5 <= machine.depths[PLAIN_EVERY:].count(0) <= 10


# ---- experts that are read ----


@dataclass
class Disk:
    """A store of 75 layers of 256 experts, of which a row chooses 8.

    Args:
        miss_rate: Share of the wanted experts that is not in memory.
        new: Experts a further row wants, as a share of those it would want independently.
    """

    miss_rate: float
    new: float = 1.0
    read_s: float = 0.01
    hits: int = 0
    misses: int = 0
    wait_s: float = 0.0

    def distinct(self, rows: int) -> float:
        independent = 75 * 256 * (1 - (1 - 8 / 256) ** rows)
        return 600 + self.new * (independent - 600)

    def waited(self, rows: int) -> float:
        return self.distinct(rows) * self.miss_rate * self.read_s

    def read(self, rows: int) -> None:
        missed = round(self.distinct(rows) * self.miss_rate)
        self.misses += missed
        self.hits += round(self.distinct(rows)) - missed
        self.wait_s += self.waited(rows)


def streaming(disk: Disk, chance: float) -> tuple[Machine, CostPolicy]:
    machine = Machine(
        lambda rows: 0.1 + 0.002 * rows, chance, waited=disk.waited, on_step=disk.read
    )
    return machine, CostPolicy(reads=MeasuredReads(disk, 75, 256, 8))


def test_reading_more_experts_counts_against_a_draft() -> None:
    """Where the disk is the limit, a guess that is right half the time loses."""
    slow, policy = streaming(Disk(0.4), 0.55)
    slow.run(policy, 400)
    assert np.mean(slow.depths[-200:]) < 0.1
    quick, policy = streaming(Disk(0.0), 0.55)
    quick.run(policy, 400)
    assert np.mean(quick.depths[-200:]) > 2


def test_rows_that_want_the_same_experts_are_worth_guessing_for() -> None:
    alike, policy = streaming(Disk(0.4, new=0.2), 0.8)
    alike.run(policy, 600)
    assert np.mean(alike.depths[-200:]) > 1
    unlike, policy = streaming(Disk(0.4, new=1.0), 0.8)
    unlike.run(policy, 600)
    assert np.mean(unlike.depths[-200:]) < 0.1


def test_drafts_follow_the_hit_rate() -> None:
    disk = Disk(0.0)
    machine, policy = streaming(disk, 0.6)
    machine.run(policy, 300)
    assert machine.depths[-1] > 0
    disk.miss_rate = 0.6
    machine.depths.clear()
    machine.run(policy, 60)
    assert machine.depths[-40:] == [0] * 40
    disk.miss_rate = 0.0
    machine.run(policy, 300)
    assert np.mean(machine.depths[-100:]) > 2


def test_what_is_read_between_steps_is_not_a_step_s() -> None:
    disk = Disk(0.5)
    reads = MeasuredReads(disk, 75, 256, 8)
    for _ in range(50):
        disk.wait_s += 99.0  # a prompt, or the draft layer
        disk.misses += 5000
        reads.begin_forward()
        disk.read(1)
        assert reads.observe(1) == pytest.approx(disk.waited(1))
    assert reads.seconds(1) == pytest.approx(disk.waited(1), rel=0.01)


def test_expected_reads_learn_how_alike_rows_are() -> None:
    disk = Disk(0.5, new=0.3)
    reads = MeasuredReads(disk, 75, 256, 8)
    for rows in [1, 3, 5] * 100:
        reads.begin_forward()
        disk.read(rows)
        reads.observe(rows)
    for rows in (1, 2, 6):
        assert reads.seconds(rows) == pytest.approx(disk.waited(rows), rel=0.03)


# ---- the two estimates ----


def test_step_times_find_base_and_slope() -> None:
    times, rng = StepTimes(), np.random.default_rng(1)
    for _ in range(200):
        rows = int(rng.integers(1, 9))
        times.observe(rows, 0.2 + 0.03 * rows)
    assert times.seconds(1) == pytest.approx(0.23, rel=0.02)
    assert times.seconds(8) == pytest.approx(0.44, rel=0.02)


def test_a_slope_once_known_outlasts_steps_of_one_size() -> None:
    times = StepTimes()
    for rows in [1, 5] * 50 + [5] * 500:
        times.observe(rows, 0.2 + 0.05 * rows)
    assert times.seconds(1) == pytest.approx(0.25, rel=0.1)


def test_without_any_step_a_row_costs_a_share_of_one() -> None:
    times = StepTimes()
    assert times.seconds(1) == 1.0
    assert 1.0 < times.seconds(5) < 2.0
    times.observe(3, 0.0)  # a clock that stands still
    assert times.seconds(1) > 0


def test_acceptance_counts_tried_guesses_and_prefers_recent_ones() -> None:
    seen = Acceptance()
    seen.add(4, 4)
    seen.add(4, 1)  # one right, one wrong, two never tried
    assert seen.rate(0.5, 0.0) == pytest.approx(5 / 6, rel=0.02)
    for _ in range(200):
        seen.add(2, 0)
    assert seen.rate(0.5, 4.0) < 0.1
