"""Wrong arguments raise with a text that names what is wrong; none of them reaches a kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.errors import KernelUnavailable
from colibri_engine.kernels import (
    Batch,
    Choices,
    Expert,
    ExpertTable,
    KvCache,
    Linear,
    Matrix,
    Rope,
    Router,
    Rows,
    Vector,
)
from tests.engine.kernels.conftest import gqa_cache, rows_of

HUGE = 2**62
INT64_MAX = 2**63 - 1
ARGUMENTS = "incompatible function arguments"  # the binding's own words, with both signatures

Case = tuple[Callable[[], object], type[Exception], str]


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def rows(count: int, width: int) -> Rows:
    return rows_of(zeros(count, width))


def layer(outputs: int, inputs: int, numerics: str = "default") -> Linear:
    return Linear([Matrix.from_float(zeros(outputs, inputs))], None, numerics)


def expert(width: int = 32, inner: int = 16, numerics: str = "default") -> Expert:
    return Expert(layer(2 * inner, width, numerics), layer(width, inner, numerics))


def cache(length: int = 0, *, layers: int = 1, kv_heads: int = 1, head_dim: int = 16) -> KvCache:
    made = gqa_cache(layers, kv_heads, head_dim)
    if length:
        batch_of(made, 0, length).commit()
    return made


def batch_of(*segment: object) -> Batch:
    batch = Batch()
    batch.set([segment])  # type: ignore[list-item]
    return batch


def rope(rotated: int = 16) -> Rope:
    return Rope(rotated, [1.0] * (rotated // 2))


def vector(size: int) -> Vector:
    return Vector(np.ones(size, np.float32))


def named(cases: dict[str, Case]) -> list[str]:
    """Return the names of cases as parameters."""
    return list(cases)


def check(cases: dict[str, Case], name: str) -> None:
    call, error, text = cases[name]
    with pytest.raises(error, match=text):
        call()


# ---- matrices -----------------------------------------------------------------------------------

CODES = np.zeros((4, 64), np.uint8)
SCALES = np.ones((4, 2), np.float32)


def pack(**changes: object) -> Matrix:
    arguments = {"codes": CODES, "scales": SCALES, "zero": 8, "mins": None, "bits": 4, "group": 32}
    return Matrix.from_codes(**(arguments | changes))  # type: ignore[arg-type]


def fp8(scales: np.ndarray, *, group: int = 16, inputs: int = 3) -> Matrix:
    codes = np.zeros((2, inputs), np.uint8)
    return Matrix.from_fp8(codes, scales.astype(np.float32), group=group)


PACKING: dict[str, Case] = {
    "codes of another type": (lambda: pack(codes=CODES.astype(np.int32)), TypeError, ARGUMENTS),
    "codes as bools": (lambda: pack(codes=CODES.astype(bool)), TypeError, ARGUMENTS),
    "codes of one dimension": (lambda: pack(codes=CODES[0]), TypeError, ARGUMENTS),
    "codes not contiguous": (lambda: pack(codes=CODES[:, ::2]), TypeError, ARGUMENTS),
    "codes in columns": (lambda: pack(codes=np.asfortranarray(CODES)), TypeError, ARGUMENTS),
    "codes are no array": (lambda: pack(codes=[[1, 2]]), TypeError, ARGUMENTS),
    "no outputs": (lambda: pack(codes=CODES[:0], scales=SCALES[:0]), ValueError, "num_outputs"),
    "no inputs": (
        lambda: pack(codes=CODES[:, :0].copy(), scales=zeros(4, 0)),
        ValueError,
        "num_in",
    ),
    "a code above 15": (lambda: pack(codes=CODES + np.uint8(16)), ValueError, "above 15"),
    "scales in float64": (lambda: pack(scales=SCALES.astype(np.float64)), ValueError, "float32"),
    "scales too few": (lambda: pack(scales=SCALES[:, :1].copy()), ValueError, "scales"),
    "scales too many": (lambda: pack(scales=np.ones((4, 3), np.float32)), ValueError, "scales"),
    "scales of other outputs": (lambda: pack(scales=np.ones((3, 2), np.float32)), ValueError, "sc"),
    "scales not contiguous": (
        lambda: pack(scales=np.ones((4, 4), np.float32)[:, ::2]),
        TypeError,
        ARGUMENTS,
    ),
    "mins of another type": (
        lambda: pack(zero=None, mins=SCALES.astype(np.float16)),
        ValueError,
        "differ in type",
    ),
    "mins of another shape": (
        lambda: pack(zero=None, mins=SCALES[:, :1].copy()),
        ValueError,
        "mins",
    ),
    "neither zero nor mins": (lambda: pack(zero=None), ValueError, "zero point or mins"),
    "zero and mins": (lambda: pack(mins=SCALES), ValueError, "zero point or mins"),
    "zero is no code": (lambda: pack(zero=16), ValueError, "zero must be a code"),
    "zero below 0": (lambda: pack(zero=-1), ValueError, "zero must be a code"),
    "five bits": (lambda: pack(bits=5), ValueError, "bits must be 4 or 8"),
    "group 0": (lambda: pack(group=0), ValueError, "group"),
    "group -32": (lambda: pack(group=-32), ValueError, "group"),
    "group 24": (lambda: pack(group=24, scales=np.ones((4, 3), np.float32)), ValueError, "16"),
    "group beyond 32 bits": (
        lambda: pack(group=2**32 + 16, scales=SCALES[:, :1].copy()),
        ValueError,
        "group",
    ),
    "group at the end of int64": (
        lambda: pack(group=INT64_MAX - 15, scales=SCALES[:, :1].copy()),
        ValueError,
        ".",
    ),
    "floats in float64": (lambda: Matrix.from_float(np.zeros((2, 2))), ValueError, "float32"),
    "floats as integers": (lambda: Matrix.from_float(np.zeros((2, 2), np.int32)), ValueError, "."),
    "uint16 that is no bf16": (
        lambda: Matrix.from_float(np.zeros((2, 2), np.uint16)),
        ValueError,
        "bf16",
    ),
    "float32 called bf16": (
        lambda: Matrix.from_float(zeros(2, 2), bf16=True),
        ValueError,
        "uint16",
    ),
    "floats transposed": (lambda: Matrix.from_float(zeros(3, 4).T), TypeError, ARGUMENTS),
    "floats of three dimensions": (lambda: Matrix.from_float(zeros(2, 2, 2)), TypeError, ARGUMENTS),
    "floats without inputs": (lambda: Matrix.from_float(zeros(2, 0)), ValueError, "num_inputs"),
    "fp8 that is no number": (
        lambda: Matrix.from_fp8(np.full((2, 3), 0x7F, np.uint8), zeros(2, 1), group=16),
        ValueError,
        "no number",
    ),
    "fp8 with too large a scale": (lambda: fp8(np.full((2, 1), 2.0**111)), ValueError, "scale"),
    "fp8 with a negative scale": (lambda: fp8(np.full((2, 1), -1.0)), ValueError, "scale"),
    "fp8 with a scale that is NaN": (lambda: fp8(np.full((2, 1), np.nan)), ValueError, "scale"),
    "fp8 with too few scales": (lambda: fp8(zeros(1, 1)), ValueError, "scales"),
    "fp8 in groups of none": (lambda: fp8(zeros(2, 1), group=0), ValueError, "group"),
    "fp8 in groups of 8": (lambda: fp8(zeros(2, 1), group=8), ValueError, "multiple of 16"),
    "fp8 in groups beyond int64": (
        lambda: fp8(zeros(2, 1), group=INT64_MAX - 15),
        ValueError,
        ".",
    ),
    "fp8 without inputs": (lambda: fp8(zeros(2, 0), inputs=0), ValueError, "num_inputs"),
    "unpack from -1": (lambda: pack().unpack(-1), ValueError, "outside"),
    "unpack beyond the end": (lambda: pack().unpack(2, 3), ValueError, "outside"),
    "unpack from beyond": (lambda: pack().unpack(5), ValueError, "outside"),
    "unpack a negative count": (lambda: pack().unpack(0, -1), ValueError, "outside"),
    "unpack more than int64 holds": (lambda: pack().unpack(1, INT64_MAX), ValueError, "outside"),
}


@pytest.mark.parametrize("name", named(PACKING))
def test_packing(name: str) -> None:
    check(PACKING, name)


# ---- rows and row operators ---------------------------------------------------------------------


def set_rows(target: Rows, count: int) -> None:
    target.rows = count


ROWS: dict[str, Case] = {
    "no capacity": (lambda: Rows(0, 4), ValueError, "capacity"),
    "negative capacity": (lambda: Rows(-1, 4), ValueError, "capacity"),
    "no width": (lambda: Rows(4, 0), ValueError, "width"),
    "more bytes than an address": (lambda: Rows(HUGE, 4), ValueError, "overflow"),
    "more rows than fit": (lambda: set_rows(Rows(4, 4), 5), ValueError, r"0\.\.4, not 5"),
    "negative rows": (lambda: set_rows(Rows(4, 4), -1), ValueError, "not -1"),
    "a vector in float64": (
        lambda: Vector(np.ones(3)),  # type: ignore[arg-type]
        TypeError,
        ARGUMENTS,
    ),
    "a strided vector": (lambda: Vector(zeros(6)[::2]), TypeError, ARGUMENTS),
    "ids in int64": (
        lambda: kernels.embed(pack(), np.zeros(1, np.int64), Rows(2, 64)),
        TypeError,
        ARGUMENTS,
    ),
    "ids of two dimensions": (
        lambda: kernels.embed(pack(), np.zeros((1, 1), np.int32), Rows(2, 64)),
        TypeError,
        ARGUMENTS,
    ),
    "id below 0": (
        lambda: kernels.embed(pack(), np.array([0, -1], np.int32), Rows(2, 64)),
        IndexError,
        r"token id -1 is outside 0\.\.3",
    ),
    "id beyond the table": (
        lambda: kernels.embed(pack(), np.array([4], np.int32), Rows(2, 64)),
        IndexError,
        r"token id 4 is outside 0\.\.3",
    ),
    "more ids than rows": (
        lambda: kernels.embed(pack(), np.zeros(3, np.int32), Rows(2, 64)),
        ValueError,
        "rows",
    ),
    "a table of another width": (
        lambda: kernels.embed(pack(), np.zeros(1, np.int32), Rows(2, 63)),
        ValueError,
        "width",
    ),
    "norm into another width": (
        lambda: kernels.rms_norm(rows(2, 8), vector(8), 1e-5, Rows(2, 9)),
        ValueError,
        "width",
    ),
    "norm with another weight": (
        lambda: kernels.rms_norm(rows(2, 8), vector(7), 1e-5, Rows(2, 8)),
        ValueError,
        "width",
    ),
    "norm into too few rows": (
        lambda: kernels.rms_norm(rows(3, 8), vector(8), 1e-5, Rows(2, 8)),
        ValueError,
        "rows",
    ),
    "heads beyond the row": (
        lambda: kernels.rms_norm_heads(rows(2, 64), 1, 4, vector(16), 1e-5),
        ValueError,
        "outside the row",
    ),
    "heads before the row": (
        lambda: kernels.rms_norm_heads(rows(2, 64), -16, 1, vector(16), 1e-5),
        ValueError,
        "outside the row",
    ),
    "a negative number of heads": (
        lambda: kernels.rms_norm_heads(rows(2, 64), 16, -1, vector(16), 1e-5),
        ValueError,
        "outside the row",
    ),
    "more heads than int64 holds": (
        lambda: kernels.rms_norm_heads(rows(2, 64), 0, 2**60, vector(16), 1e-5),
        ValueError,
        "outside the row",
    ),
    "an offset at the end of int64": (
        lambda: kernels.rms_norm_heads(rows(2, 64), INT64_MAX, 1, vector(16), 1e-5),
        ValueError,
        "outside the row",
    ),
    "heads without channels": (
        lambda: kernels.rms_norm_heads(rows(2, 64), 0, 1, vector(0), 1e-5),
        ValueError,
        "outside the row",
    ),
    "gate and up of another width": (
        lambda: kernels.swiglu(rows(2, 33), Rows(2, 16)),
        ValueError,
        "twice",
    ),
    "gate into too few rows": (
        lambda: kernels.swiglu(rows(3, 32), Rows(2, 16)),
        ValueError,
        "rows",
    ),
    "an array in place of rows": (
        lambda: kernels.swiglu(zeros(2, 32), Rows(2, 16)),  # type: ignore[arg-type]
        TypeError,
        ARGUMENTS,
    ),
}


@pytest.mark.parametrize("name", named(ROWS))
def test_rows(name: str) -> None:
    check(ROWS, name)


# ---- layers, gated blocks, mixtures -------------------------------------------------------------


def same_rows(call: Callable[[Rows], object]) -> object:
    return call(rows(2, 32))


def choices(count: int, num_choices: int, num_experts: int, first: int = 0) -> Choices:
    made = Choices()
    rule = Router(num_choices, scoring="sigmoid", normalize=True, scale=1.0, bias=None)
    kernels.route(rows(count, num_experts), rule, made)
    made.ids[0, 0] = first
    return made


def mix(chosen: Choices, x: Rows | None = None, out: Rows | None = None) -> None:
    table = ExpertTable([expert() for _ in range(3)])
    kernels.moe(x or rows(2, 32), table, chosen, out or rows(2, 32))


LAYERS: dict[str, Case] = {
    "no parts": (lambda: Linear([]), ValueError, "at least one"),
    "a part is missing": (
        lambda: Linear([None]),  # type: ignore[list-item]
        ValueError,
        "missing",
    ),
    "parts of other inputs": (
        lambda: Linear([Matrix.from_float(zeros(2, 4)), Matrix.from_float(zeros(2, 5))]),
        ValueError,
        "differ in inputs",
    ),
    "bias too short": (
        lambda: Linear([Matrix.from_float(zeros(2, 4))], zeros(1)),
        ValueError,
        "bias and outputs",
    ),
    "bias in float64": (
        lambda: Linear([Matrix.from_float(zeros(2, 4))], np.zeros(2)),  # type: ignore[arg-type]
        TypeError,
        ARGUMENTS,
    ),
    "unknown numerics": (
        lambda: Linear([Matrix.from_float(zeros(2, 4))], None, "exact"),
        ValueError,
        "default, fast or float",
    ),
    "x of another width": (
        lambda: kernels.linear(rows(2, 31), layer(8, 32), Rows(2, 8)),
        ValueError,
        "inputs",
    ),
    "out of another width": (
        lambda: kernels.linear(rows(2, 32), layer(8, 32), Rows(2, 9)),
        ValueError,
        "outputs",
    ),
    "out too short": (
        lambda: kernels.linear(rows(3, 32), layer(8, 32), Rows(2, 8)),
        ValueError,
        "rows",
    ),
    "added to other rows": (
        lambda: kernels.linear(rows(2, 32), layer(8, 32), rows(3, 8), add=True),
        ValueError,
        "rows",
    ),
    "x is out": (
        lambda: same_rows(lambda r: kernels.linear(r, layer(32, 32), r)),
        ValueError,
        "same rows",
    ),
    "down does not fit gate_up": (
        lambda: Expert(layer(32, 8), layer(8, 15)),
        ValueError,
        "twice",
    ),
    "a gated block over another width": (
        lambda: kernels.mlp(rows(2, 31), expert(), rows(2, 32)),
        ValueError,
        "inputs",
    ),
    "a gated block into another width": (
        lambda: kernels.mlp(rows(2, 32), expert(), rows(2, 33)),
        ValueError,
        "outputs",
    ),
    "a gated block added to other rows": (
        lambda: kernels.mlp(rows(2, 32), expert(), rows(1, 32)),
        ValueError,
        "rows",
    ),
    "a gated block onto its input": (
        lambda: same_rows(lambda r: kernels.mlp(r, expert(), r)),
        ValueError,
        "same rows",
    ),
    "a clamp of zero": (
        lambda: Expert(layer(32, 8), layer(8, 16), (0.0, 1.702)),
        ValueError,
        "positive and finite",
    ),
    "a clamp that is no pair": (
        lambda: Expert(layer(32, 8), layer(8, 16), (7.0,)),  # type: ignore[arg-type]
        TypeError,
        ARGUMENTS,
    ),
    "experts with and without a clamp": (
        lambda: ExpertTable([expert(), Expert(layer(32, 32), layer(32, 16), (7.0, 1.7))]),
        ValueError,
        "gated unit",
    ),
    "no experts": (lambda: ExpertTable([]), ValueError, "at least one"),
    "experts of other widths": (
        lambda: ExpertTable([expert(), expert(inner=8)]),
        ValueError,
        "shape",
    ),
    "experts of other numerics": (
        lambda: ExpertTable([expert(), expert(numerics="float")]),
        ValueError,
        "numerics",
    ),
    "an expert that does not exist": (
        lambda: mix(choices(2, 2, 3, first=3)),
        IndexError,
        r"expert 3 is outside 0\.\.2",
    ),
    "an expert below 0": (lambda: mix(choices(2, 2, 3, first=-1)), IndexError, "expert -1"),
    "a router over more experts": (lambda: mix(choices(2, 5, 5)), IndexError, "outside"),
    "choices of other rows": (lambda: mix(choices(3, 2, 3)), ValueError, "rows"),
    "choices never made": (lambda: mix(Choices()), ValueError, "rows"),
    "a mixture over another width": (
        lambda: mix(choices(2, 2, 3), x=rows(2, 31)),
        ValueError,
        "experts",
    ),
    "a mixture into another width": (
        lambda: mix(choices(2, 2, 3), out=rows(2, 31)),
        ValueError,
        "experts",
    ),
    "a mixture into other rows": (
        lambda: mix(choices(2, 2, 3), out=rows(1, 32)),
        ValueError,
        "rows",
    ),
    "a mixture onto its input": (
        lambda: same_rows(lambda r: mix(choices(2, 2, 3), x=r, out=r)),
        ValueError,
        "same rows",
    ),
}


@pytest.mark.parametrize("name", named(LAYERS))
def test_layers(name: str) -> None:
    check(LAYERS, name)


# ---- routing ------------------------------------------------------------------------------------


def send(num_choices: int, num_experts: int = 8, **changes: object) -> None:
    arguments = {"scoring": "sigmoid", "normalize": True, "scale": 1.0, "bias": None} | changes
    router = Router(num_choices, **arguments)  # type: ignore[arg-type]
    kernels.route(rows(2, num_experts), router, Choices())


ROUTING: dict[str, Case] = {
    "no choices": (lambda: send(0), ValueError, "num_choices"),
    "a negative number of choices": (lambda: send(-1), ValueError, "num_choices"),
    "a huge number of choices": (lambda: send(HUGE), ValueError, "num_choices"),
    "more choices than experts": (lambda: send(9), ValueError, "num_choices"),
    "an unknown score": (lambda: send(2, scoring="argmax"), ValueError, "sigmoid, softmax or top_"),
    "a bias of another width": (lambda: send(2, bias=zeros(7)), ValueError, "bias"),
    "a bias in float64": (lambda: send(2, bias=np.zeros(8)), TypeError, ARGUMENTS),
    "only shared experts": (lambda: send(1, num_shared=8), ValueError, "num_shared"),
    "a negative number of shared experts": (
        lambda: send(1, num_shared=-1),
        ValueError,
        "num_shared",
    ),
    "shared experts in a softmax": (
        lambda: send(1, num_shared=2, scoring="softmax"),
        ValueError,
        "normalized sigmoids",
    ),
    "a bias for shared experts": (
        lambda: send(1, num_shared=2, bias=zeros(8)),
        ValueError,
        "bias",
    ),
    "more choices than experts to choose": (lambda: send(7, num_shared=2), ValueError, "choices"),
    "groups that do not divide": (lambda: send(2, num_groups=3), ValueError, "groups"),
    "no groups": (lambda: send(2, num_groups=0), ValueError, "groups"),
    "groups of one": (lambda: send(2, num_groups=8, kept_groups=2), ValueError, "two experts"),
    "no kept groups": (lambda: send(2, num_groups=4, kept_groups=0), ValueError, "kept_groups"),
    "too many kept groups": (lambda: send(2, num_groups=4, kept_groups=5), ValueError, "kept"),
    "kept groups too small": (lambda: send(5, num_groups=4, kept_groups=2), ValueError, "fewer"),
}


@pytest.mark.parametrize("name", named(ROUTING))
def test_routing(name: str) -> None:
    check(ROUTING, name)


@pytest.mark.parametrize("num_choices", [-1, 0, 9])
def test_a_refused_routing_leaves_no_choices_to_use(num_choices: int) -> None:
    made = choices(2, 2, 3)
    rule = Router(num_choices, scoring="sigmoid", normalize=True, scale=1.0, bias=None)
    with pytest.raises(ValueError, match="num_choices"):
        kernels.route(rows(5, 8), rule, made)
    assert made.ids.size <= 4
    with pytest.raises(ValueError, match="rows"):
        mix(made, x=rows(5, 32), out=rows(5, 32))


def test_a_router_stays_with_its_number_of_experts() -> None:
    rule = Router(2, scoring="sigmoid", normalize=True, scale=1.0, bias=None)
    kernels.route(rows(2, 4), rule, Choices())
    with pytest.raises(ValueError, match="experts"):
        kernels.route(rows_of(np.arange(8192, dtype=np.float32)[None]), rule, Choices())


# ---- sequences ----------------------------------------------------------------------------------


def store(
    batch: Batch, qkv: Rows, *, layer_idx: int = 0, heads: int = 2, rotated: int = 16
) -> None:
    kernels.rope_store(qkv, batch, layer_idx, rope(rotated), heads)


def attend(batch: Batch, qkv: Rows, *, heads: int = 2, layer_idx: int = 0, width: int = 32) -> None:
    kernels.attention(qkv, batch, layer_idx, heads, 0.25, Rows(8, width))


def two_shapes() -> Batch:
    """Return a batch over caches whose rows are equally wide and their heads not."""
    batch = Batch()
    segments = [
        (gqa_cache(1, 2, 48), 0, 1),
        (gqa_cache(1, 1, 64), 0, 1),
    ]  # 4 heads: (4 + 2 * 2) * 48 = (4 + 2 * 1) * 64 = 384
    batch.set(segments)
    return batch


SEQUENCES: dict[str, Case] = {
    "a cache without layers": (lambda: gqa_cache(0, 1, 16), ValueError, "layer"),
    "a cache without heads": (lambda: gqa_cache(1, 0, 16), ValueError, "head"),
    "head_dim 24": (lambda: gqa_cache(1, 1, 24), ValueError, "multiple of 16"),
    "head_dim 272": (lambda: gqa_cache(1, 1, 272), ValueError, "up to 256"),
    "a cache beyond int64": (lambda: gqa_cache(1, HUGE, 256), ValueError, "overflow"),
    "negative room": (lambda: cache().reserve(-1), ValueError, "-1"),
    "room beyond any memory": (lambda: cache().reserve(INT64_MAX), MemoryError, "KV cache"),
    "truncated to more": (lambda: cache(3).truncate(4), ValueError, "3 positions.*to 4"),
    "truncated below 0": (lambda: cache(3).truncate(-1), ValueError, "-1"),
    "a prefix of another shape": (
        lambda: cache().copy_prefix(cache(3, head_dim=32), 2),
        ValueError,
        "dimensions",
    ),
    "a prefix that is not there": (lambda: cache().copy_prefix(cache(3), 4), ValueError, "prefix"),
    "a negative prefix": (lambda: cache().copy_prefix(cache(3), -1), ValueError, "prefix"),
    "a step without a cache": (lambda: batch_of(None, 0, 1), ValueError, "no cache"),
    "a step of no rows": (lambda: batch_of(cache(), 0, 0), ValueError, "at least one row"),
    "a step of negative rows": (lambda: batch_of(cache(), 0, -1), ValueError, "at least one row"),
    "a gap in a sequence": (lambda: batch_of(cache(3), 4, 1), ValueError, "behind the end"),
    "a negative start": (lambda: batch_of(cache(3), -1, 1), ValueError, "start"),
    "a step beyond any memory": (
        lambda: batch_of(cache(3), 0, INT64_MAX),
        MemoryError,
        "KV cache",
    ),
    "a step beyond int64": (
        lambda: batch_of(cache(3), 3, INT64_MAX),
        ValueError,
        "cannot reserve",
    ),
    "two steps of one cache": (
        lambda: Batch().set([(shared := cache(), 0, 1), (shared, 0, 1)]),
        ValueError,
        "share a cache",
    ),
    "rotated is odd": (lambda: Rope(15, [1.0] * 7), ValueError, "even"),
    "rotated is 0": (lambda: Rope(0, []), ValueError, "positive"),
    "frequencies too few": (lambda: Rope(16, [1.0] * 7), ValueError, "inv_freq"),
    "more channels rotate than there are": (
        lambda: store(batch_of(cache(), 0, 2), rows(2, 64), rotated=32),
        ValueError,
        "rotates more",
    ),
    "other rows than the batch": (
        lambda: store(batch_of(cache(), 0, 2), rows(3, 64)),
        ValueError,
        "batch and the rows",
    ),
    "a batch never set": (lambda: store(Batch(), rows(1, 64)), ValueError, "batch and the rows"),
    "qkv of another width": (
        lambda: store(batch_of(cache(), 0, 2), rows(2, 63)),
        ValueError,
        "width",
    ),
    "heads do not divide": (
        lambda: store(batch_of(cache(kv_heads=2), 0, 2), rows(2, 112), heads=3),
        ValueError,
        "multiple",
    ),
    "no query heads": (
        lambda: store(batch_of(cache(), 0, 2), rows(2, 32), heads=0),
        ValueError,
        "heads",
    ),
    "more query heads than int64 holds": (
        lambda: store(batch_of(cache(), 0, 2), rows(2, 64), heads=2**60 + 2),
        ValueError,
        ".",
    ),
    "a layer below 0": (
        lambda: store(batch_of(cache(), 0, 2), rows(2, 64), layer_idx=-1),
        ValueError,
        "layer",
    ),
    "a layer beyond the cache": (
        lambda: attend(batch_of(cache(layers=2), 0, 2), rows(2, 64), layer_idx=2),
        ValueError,
        "layer",
    ),
    "attention of other rows": (
        lambda: attend(batch_of(cache(), 0, 2), rows(1, 64)),
        ValueError,
        "batch and the rows",
    ),
    "attention into another width": (
        lambda: attend(batch_of(cache(), 0, 2), rows(2, 64), width=48),
        ValueError,
        "width",
    ),
    "attention into too few rows": (
        lambda: attend(batch_of(cache(), 0, 9), rows(9, 64)),
        ValueError,
        "rows",
    ),
    "caches of two shapes": (
        lambda: attend(two_shapes(), rows(2, 384), heads=4, width=192),
        ValueError,
        ".",
    ),
}


@pytest.mark.parametrize("name", named(SEQUENCES))
def test_sequences(name: str) -> None:
    check(SEQUENCES, name)


def test_a_refused_batch_keeps_its_caches(rng: np.random.Generator) -> None:
    kept = cache(5)
    batch = batch_of(kept, 5, 1)
    with pytest.raises(ValueError, match="behind the end"):
        batch.set([(kept, 6, 1)])
    assert kept.length == 5


# ---- machine ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "AVX512", "avx1024", "neon\0", "sve"])
def test_an_instruction_set_that_is_missing(name: str) -> None:
    before = kernels.active_isa()
    with pytest.raises(KernelUnavailable) as caught:
        kernels.set_isa(name)
    for available in kernels.available_isas():
        assert available in str(caught.value)
    assert kernels.active_isa() == before


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-5, 1), (1, 1), (3, 3), (10**6, 256)])
def test_thread_counts_are_brought_into_range(asked: int, given: int) -> None:
    kernels.set_num_threads(asked)
    assert kernels.num_threads() == given
