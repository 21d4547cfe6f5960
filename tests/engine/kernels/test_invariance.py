"""Rows in a call, threads and instruction sets never change a bit of an operator's result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Batch, Expert, Linear, Matrix, Rope, Rows, Vector
from tests.engine.kernels.conftest import apply, gqa_cache, rows_of
from tests.engine.kernels.reference import F32, IntWeights, fp8_matrix, random_int_weights

MAX_ROWS = 70  # more than a panel of rows
INPUTS = 576
Operator = Callable[[F32], F32]


def random_rows(rng: np.random.Generator, width: int) -> F32:
    x = rng.standard_normal((MAX_ROWS, width)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = 0
    x[3, 5] = 1e-41  # flushed to zero by code that changes the treatment of subnormals
    x[4] *= np.float32(1e-38)
    return x


def weights_of(rng: np.random.Generator, kind: str) -> Matrix | IntWeights:
    if kind == "q4":
        return random_int_weights(rng, 203, INPUTS)
    if kind == "q4-mins":
        return random_int_weights(rng, 203, INPUTS, with_mins=True)
    if kind == "q8":
        return random_int_weights(rng, 203, INPUTS, bits=8)
    if kind == "q8-group-16":
        return random_int_weights(rng, 203, INPUTS, bits=8, group=16, dtype=np.float32)
    values = (rng.standard_normal((203, INPUTS)) / 24).astype(np.float32)
    if kind == "fp8":
        return fp8_matrix(values, group=128)
    if kind == "bf16":
        return Matrix.from_float((values.view(np.uint32) >> 16).astype(np.uint16), bf16=True)
    return Matrix.from_float(values.astype(np.float16 if kind == "f16" else np.float32))


def linear(kind: str, numerics: str) -> Callable[[np.random.Generator], tuple[Operator, int]]:
    def build(rng: np.random.Generator) -> tuple[Operator, int]:
        weights = weights_of(rng, kind)
        matrix = weights if isinstance(weights, Matrix) else weights.pack()
        layer = Linear([matrix], rng.standard_normal(203).astype(np.float32), numerics)
        return lambda x: apply(layer, x), INPUTS

    return build


def gated_block(rng: np.random.Generator) -> tuple[Operator, int]:
    gate_up = Linear([random_int_weights(rng, 160, INPUTS).pack() for _ in range(2)])
    block = Expert(gate_up, Linear([random_int_weights(rng, 96, 160, bits=8).pack()]))

    def run(x: F32) -> F32:
        out = Rows(len(x), 96)
        kernels.mlp(rows_of(x), block, out, add=False)
        return out.array.copy()

    return run, INPUTS


def rms_norm(rng: np.random.Generator) -> tuple[Operator, int]:
    weight = Vector(rng.standard_normal(INPUTS).astype(np.float32))

    def run(x: F32) -> F32:
        out = Rows(len(x), INPUTS)
        kernels.rms_norm(rows_of(x), weight, 1e-5, out)
        return out.array.copy()

    return run, INPUTS


def swiglu(rng: np.random.Generator) -> tuple[Operator, int]:
    def run(x: F32) -> F32:
        out = Rows(len(x), INPUTS // 2)
        kernels.swiglu(rows_of(x), out)
        return out.array.copy()

    return run, INPUTS


OPERATORS = {
    **{
        f"{kind}-{numerics}": linear(kind, numerics)
        for kind in ("q4", "q4-mins", "q8", "q8-group-16")
        for numerics in ("default", "fast", "float")
    },
    **{kind: linear(kind, "default") for kind in ("f32", "f16", "bf16", "fp8")},
    "gated block": gated_block,
    "rms_norm": rms_norm,
    "swiglu": swiglu,
}


def same_bits(got: F32, want: F32) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.fixture(params=sorted(OPERATORS))
def operator(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[Operator, F32]:
    run, width = OPERATORS[request.param](rng)
    return run, random_rows(rng, width)


def test_company_in_a_call(isa: str, operator: tuple[Operator, F32]) -> None:
    run, x = operator
    whole = run(x)
    for size in (1, 2, 3, 4, 7, 8, 9, 16, 33):
        parts = [run(x[begin : begin + size]) for begin in range(0, len(x), size)]
        same_bits(np.concatenate(parts), whole)


def test_number_of_threads(isa: str, operator: tuple[Operator, F32]) -> None:
    run, x = operator
    kernels.set_num_threads(1)
    alone, one_row = run(x), run(x[:1])
    for threads in (2, 3, 8):
        kernels.set_num_threads(threads)
        same_bits(run(x), alone)
        same_bits(run(x[:1]), one_row)


def test_instruction_sets(operator: tuple[Operator, F32]) -> None:
    run, x = operator
    before, results = kernels.active_isa(), {}
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            results[isa] = run(x)
    finally:
        kernels.set_isa(before)
    assert np.isfinite(results["scalar"]).all()
    for result in results.values():
        same_bits(result, results["scalar"])


# ---- attention: rows depend on those before them, so a call is a chunk --------------------------


def attend(qkv: F32, chunks: list[int]) -> F32:
    """Return rotary embedding and attention of one sequence fed in chunks."""
    cache, batch = gqa_cache(1, 2, 64), Batch()
    rope = Rope(48, [0.5**j for j in range(24)], 1.0, interleaved=False)
    parts, begin = [], 0
    for count in chunks:
        batch.set([(cache, begin, count)])
        rows, out = rows_of(qkv[begin : begin + count]), Rows(count, 6 * 64)
        kernels.rope_store(rows, batch, 0, rope, 6)
        kernels.attention(rows, batch, 0, 6, 0.125, out)
        batch.commit()
        parts.append(out.array.copy())
        begin += count
    return np.concatenate(parts)


@pytest.fixture
def qkv(rng: np.random.Generator) -> F32:
    return rng.standard_normal((560, 10 * 64)).astype(np.float32)


def test_attention_in_any_chunks(isa: str, qkv: F32) -> None:
    whole = attend(qkv, [560])
    for chunks in ([1] * 60 + [500], [256, 256, 48], [33] * 16 + [32], [530] + [1] * 30):
        same_bits(attend(qkv, chunks), whole)


def test_attention_on_any_threads(isa: str, qkv: F32) -> None:
    kernels.set_num_threads(1)
    alone = attend(qkv, [300, 1, 259])
    for threads in (2, 5):
        kernels.set_num_threads(threads)
        same_bits(attend(qkv, [300, 1, 259]), alone)


def test_attention_on_any_instruction_set(qkv: F32) -> None:
    before, results = kernels.active_isa(), {}
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            results[isa] = attend(qkv, [200, 1, 359])
    finally:
        kernels.set_isa(before)
    for result in results.values():
        same_bits(result, results["scalar"])
