"""A mixture computed in parts has the bits of one computed at once, in any order and any split."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Choices, Expert, ExpertTable, Linear, MoeStep, Rows
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import F32, random_int_weights
from tests.engine.kernels.test_moe import (
    NUMERICS,
    C,
    E,
    F,
    clamped_expert,
    random_choices,
    random_expert,
)
from tests.engine.kernels.test_rotation import pack_rotated


def at_once(experts: list[Expert], x: F32, choices: Choices, start: F32) -> F32:
    out = rows_of(start)
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    return out.array.copy()


def in_parts(
    step: MoeStep, experts: list[Expert], x: Rows, choices: Choices, start: F32, *, split: list[int]
) -> F32:
    """Run the chosen experts in the order of `split`'s shuffled ids, cut where it says."""
    step.begin(x, choices, len(experts), experts[0])
    ids = step.ids
    assert ids == sorted(set(choices.ids.ravel().tolist()))
    order = np.random.default_rng(split).permutation(ids).tolist()
    for part in np.split(np.array(order), [cut for cut in split if cut < len(order)]):
        step.run(part.tolist(), [experts[e] for e in part])
    out = rows_of(start)
    step.end(out)
    return out.array.copy()


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize(("rows", "num_choices"), [(1, 1), (1, 7), (3, 2), (65, 3)])
@pytest.mark.parametrize("split", [[], [1], [1, 2, 3, 4, 5, 6], [3, 3, 5]])
def test_order_and_split_change_no_bit(
    isa: str,
    rng: np.random.Generator,
    numerics: str,
    rows: int,
    num_choices: int,
    split: list[int],
) -> None:
    experts = [random_expert(rng, numerics) for _ in range(E)]
    x, start = rng.standard_normal((2, rows, C)).astype(np.float32)
    choices = random_choices(rng, rows, num_choices)
    expected = at_once(experts, x, choices, start)
    found = in_parts(MoeStep(), experts, rows_of(x), choices, start, split=split)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_clamped_and_rotated_experts_may_be_split(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    def turned(outputs: int, inputs: int) -> Linear:
        return Linear([pack_rotated(random_int_weights(rng, outputs, inputs))], None, numerics)

    x, start = rng.standard_normal((2, 20, C)).astype(np.float32)
    choices = random_choices(rng, 20, 3)
    step = MoeStep()
    for experts in (
        [clamped_expert(rng, numerics) for _ in range(E)],
        [Expert(turned(2 * F, C), turned(C, F)) for _ in range(E)],
    ):
        expected = at_once(experts, x, choices, start)
        for split in ([], [2], [1, 4]):
            found = in_parts(step, experts, rows_of(x), choices, start, split=split)
            np.testing.assert_array_equal(found, expected)


def test_a_step_may_be_used_again_for_more_and_for_fewer_rows(
    isa: str, rng: np.random.Generator
) -> None:
    experts = [random_expert(rng, "default") for _ in range(E)]
    step = MoeStep()
    for rows in (2, 50, 1, 0, 9):
        x, start = rng.standard_normal((2, rows, C)).astype(np.float32)
        choices = random_choices(rng, rows, 3)
        held = Rows(max(rows, 1), C)
        held.rows = rows
        held.array[:] = x
        step.begin(held, choices, E, experts[0])
        for e in reversed(step.ids):
            step.run([e], [experts[e]])
        out = Rows(max(rows, 1), C)
        out.rows = rows
        out.array[:] = start
        step.end(out)
        if rows:
            np.testing.assert_array_equal(out.array, at_once(experts, x, choices, start))


def test_other_operators_may_run_between_the_parts(isa: str, rng: np.random.Generator) -> None:
    experts = [random_expert(rng, "default") for _ in range(E)]
    x, start = rng.standard_normal((2, 12, C)).astype(np.float32)
    choices = random_choices(rng, 12, 3)
    expected = at_once(experts, x, choices, start)
    step, held = MoeStep(), rows_of(x)
    step.begin(held, choices, E, experts[0])
    ids = step.ids
    other = Rows(30, C)
    for e in ids:
        step.run([e], [experts[e]])
        kernels.mlp(rows_of(rng.standard_normal((30, C))), experts[0], other, add=False)
        at_once(experts, x[::-1].copy(), random_choices(rng, 12, 2), start)
    out = rows_of(start)
    step.end(out)
    np.testing.assert_array_equal(out.array, expected)


def test_what_does_not_belong_to_a_step_is_refused(rng: np.random.Generator) -> None:
    experts = [random_expert(rng, "default") for _ in range(E)]
    x = rows_of(rng.standard_normal((2, C)))
    choices = random_choices(rng, 2, 2)
    choices.ids[:] = [[1, 4], [4, 5]]
    step, out = MoeStep(), rows_of(np.zeros((2, C)))
    with pytest.raises(ValueError, match="no row chose expert 1"):
        step.run([1], [experts[1]])
    step.begin(x, choices, E, experts[0])
    for stranger in (0, -1, E):
        with pytest.raises(ValueError, match=f"no row chose expert {stranger}"):
            step.run([stranger], [experts[0]])
    with pytest.raises(ValueError, match="differ in number"):
        step.run([1, 4], [experts[1]])
    with pytest.raises(ValueError, match="given twice"):
        step.run([1, 1], [experts[1], experts[1]])
    with pytest.raises(ValueError, match="not like the others"):
        step.run([1], [random_expert(rng, "float")])
    with pytest.raises(ValueError, match="not like the others"):
        step.run([1], [clamped_expert(rng, "default")])
    step.run([4], [experts[4]])
    with pytest.raises(ValueError, match="expert 4 is computed already"):
        step.run([4], [experts[4]])
    with pytest.raises(ValueError, match="2 chosen experts are not computed yet"):
        step.end(out)
    step.run([5, 1], [experts[5], experts[1]])
    with pytest.raises(ValueError, match="differ in rows"):
        step.end(rows_of(np.zeros((3, C))))
    with pytest.raises(ValueError, match="differ in outputs"):
        step.end(rows_of(np.zeros((2, C + 1))))
    step.end(out)
    choices.ids[0, 0] = E
    with pytest.raises(IndexError, match=f"expert {E} is outside"):
        step.begin(x, choices, E, experts[0])
    with pytest.raises(ValueError, match="no row chose"):
        step.run([4], [experts[4]])
    with pytest.raises(ValueError, match="differ in rows"):
        step.begin(rows_of(np.zeros((3, C))), choices, E, experts[0])
