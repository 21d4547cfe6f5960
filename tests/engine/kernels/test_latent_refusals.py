"""What the operators of latent attention refuse, without touching memory that is not theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import (
    Batch,
    HeadLinear,
    IndexHeads,
    KvCache,
    LatentHeads,
    LayerLayout,
    Matrix,
    Rope,
    Rows,
    Selection,
    Vector,
)
from tests.engine.kernels.conftest import gqa_cache, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = 2**62


def rows(count: int, width: int) -> Rows:
    return rows_of(np.zeros((count, width), np.float32))


def layout(latent_dim: int = 8, index_dim: int = 4) -> LayerLayout:
    return LayerLayout(latent_dim=latent_dim, index_dim=index_dim)


def batch_of(*caches: KvCache, count: int = 2) -> Batch:
    batch = Batch()
    batch.set([(cache, 0, count) for cache in caches])
    return batch


def latent_batch(*, latent_dim: int = 8, index_dim: int = 4) -> Batch:
    return batch_of(KvCache([layout(latent_dim, index_dim)]))


def attend(
    absorbed: Rows,
    q: Rows,
    batch: Batch,
    *,
    layer: int = 0,
    heads: int = 2,
    selection: Selection | None = None,
) -> None:
    kernels.latent_attention(absorbed, q, batch, layer, LatentHeads(heads, 1.0), selection)


def select(
    q: Rows, weights: Rows, batch: Batch, *, layer: int = 0, heads: int = 3, offset: int = 0
) -> None:
    kernels.index_select(q, weights, batch, layer, IndexHeads(heads, offset, 1.0), Selection(1))


def matrix(outputs: int = 16, inputs: int = 4) -> Matrix:
    return Matrix.from_float(np.zeros((outputs, inputs), np.float32))


def codes(outputs: int = 32, inputs: int = 16, *, rotated: bool = False) -> Matrix:
    ones = np.ones((outputs, 1), np.float16)
    return Matrix.from_codes(
        np.zeros((outputs, inputs), np.uint8), ones, 8, None, bits=4, group=64, rotated=rotated
    )


def scales(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def rope() -> Rope:
    return Rope(4, [1.0, 0.5])


def of_another_step() -> Selection:
    selection = Selection(4)
    selection.reset(3)
    return selection


def two_latents() -> Batch:
    return batch_of(KvCache([layout(8)]), KvCache([layout(9)]), count=1)


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "a selection of nothing": (lambda: Selection(0), "topk"),
    "a selection of too much": (lambda: Selection(2**31), "topk"),
    "positions of no row": (lambda: Selection(4).positions(0), "no such row"),
    "positions of a row below 0": (lambda: of_another_step().positions(-1), "no such row"),
    "a selection of negative rows": (lambda: Selection(4).reset(-1), "rows"),
    "attention of other rows": (
        lambda: attend(rows(3, 12), rows(2, 8), latent_batch()),
        "batch and the rows",
    ),
    "queries of other rows": (
        lambda: attend(rows(2, 12), rows(1, 8), latent_batch()),
        "batch and the rows",
    ),
    "no heads": (lambda: attend(rows(2, 12), rows(2, 8), latent_batch(), heads=0), "num_heads"),
    "heads that do not divide": (
        lambda: attend(rows(2, 12), rows(2, 8), latent_batch(), heads=5),
        "num_heads",
    ),
    "values wider than the latents": (
        lambda: attend(rows(2, 18), rows(2, 8), latent_batch()),
        "do not fit",
    ),
    "too few channels that turn": (
        lambda: attend(rows(2, 2), rows(2, 8), latent_batch()),
        "do not fit",
    ),
    "a layer without latents": (
        lambda: attend(rows(2, 12), rows(2, 8), batch_of(gqa_cache(1, 1, 16))),
        "no latents",
    ),
    "a layer beyond the cache": (
        lambda: attend(rows(2, 12), rows(2, 8), latent_batch(), layer=1),
        "no layer 1",
    ),
    "a selection of another step": (
        lambda: attend(rows(2, 12), rows(2, 8), latent_batch(), selection=of_another_step()),
        "another step",
    ),
    "caches of two widths": (
        lambda: attend(rows(2, 12), rows(2, 8), two_latents()),
        "different latents",
    ),
    "an indexer's other rows": (
        lambda: select(rows(1, 12), rows(2, 3), latent_batch()),
        "batch and the rows",
    ),
    "weights of other rows": (
        lambda: select(rows(2, 12), rows(1, 3), latent_batch()),
        "batch and the rows",
    ),
    "weights outside their rows": (
        lambda: select(rows(2, 12), rows(2, 3), latent_batch(), offset=1),
        "outside the rows",
    ),
    "weights below their rows": (
        lambda: select(rows(2, 12), rows(2, 3), latent_batch(), offset=-1),
        "outside the rows",
    ),
    "an offset of weights beyond int64": (
        lambda: select(rows(2, 12), rows(2, 3), latent_batch(), offset=2**63 - 1),
        "outside the rows",
    ),
    "an indexer without heads": (
        lambda: select(rows(2, 12), rows(2, 3), latent_batch(), heads=0),
        "head weights",
    ),
    "index heads of another width": (
        lambda: select(rows(2, 15), rows(2, 3), latent_batch()),
        "do not fit",
    ),
    "a layer without index keys": (
        lambda: select(rows(2, 12), rows(2, 3), latent_batch(index_dim=0)),
        "no index keys",
    ),
    "latents outside their rows": (
        lambda: kernels.store_latents(rows(2, 8), 1, latent_batch(), 0),
        "outside the rows",
    ),
    "latents below their rows": (
        lambda: kernels.store_latents(rows(2, 8), -1, latent_batch(), 0),
        "outside the rows",
    ),
    "latents of other rows": (
        lambda: kernels.store_latents(rows(3, 8), 0, latent_batch(), 0),
        "batch and the rows",
    ),
    "index keys outside their rows": (
        lambda: kernels.store_index_keys(rows(2, 8), 5, latent_batch(), 0),
        "outside the rows",
    ),
    "index keys without a place": (
        lambda: kernels.store_index_keys(rows(2, 8), 0, latent_batch(index_dim=0), 0),
        "no index keys",
    ),
    "rotation of other rows": (
        lambda: kernels.rotate(rows(3, 8), latent_batch(), rope(), 0, 1, 4),
        "batch and the rows",
    ),
    "rotation outside the rows": (
        lambda: kernels.rotate(rows(2, 8), latent_batch(), rope(), 5, 1, 4),
        "outside the rows",
    ),
    "rotation below the rows": (
        lambda: kernels.rotate(rows(2, 8), latent_batch(), rope(), -1, 1, 4),
        "outside the rows",
    ),
    "rotation of too many heads": (
        lambda: kernels.rotate(rows(2, 8), latent_batch(), rope(), 0, 3, 4),
        "outside the rows",
    ),
    "rotation with a stride beyond int64": (
        lambda: kernels.rotate(rows(2, 8), latent_batch(), rope(), 0, 2, HUGE),
        "outside the rows",
    ),
    "rotation of heads beyond int64": (
        lambda: kernels.rotate(rows(2, 8), latent_batch(), rope(), 0, HUGE, HUGE),
        "outside the rows",
    ),
    "rotation of rows narrower than it": (
        lambda: kernels.rotate(rows(2, 3), latent_batch(), rope(), 0, 1, 4),
        "outside the rows",
    ),
    "a norm outside the rows": (
        lambda: kernels.layer_norm(rows(1, 4), 1, Vector(scales(4)), Vector(scales(4)), 1e-6),
        "outside the rows",
    ),
    "a norm with another bias": (
        lambda: kernels.layer_norm(rows(1, 4), 0, Vector(scales(4)), Vector(scales(3)), 1e-6),
        "differ in length",
    ),
    "a norm of nothing": (
        lambda: kernels.layer_norm(rows(1, 4), 0, Vector(scales(0)), Vector(scales(0)), 1e-6),
        "outside the rows",
    ),
    "a layer of no heads": (lambda: HeadLinear([]), "at least one"),
    "heads of two sizes": (lambda: HeadLinear([matrix(), matrix(inputs=5)]), "differ in size"),
    "a rotated head": (lambda: HeadLinear([codes(rotated=True)]), "rotated"),
    "input scales for floats": (
        lambda: HeadLinear([matrix()], scales(1, 1, 4), 16),
        "matrices of integers",
    ),
    "input scales of another shape": (
        lambda: HeadLinear([codes()], scales(1, 3, 16), 16),
        "input scales must be",
    ),
    "runs that split a tile": (
        lambda: HeadLinear([codes()], scales(1, 4, 16), 8),
        "multiples of 16",
    ),
    "numerics of another name": (lambda: HeadLinear([matrix()], numerics="exact"), "numerics"),
    "heads outside their rows": (
        lambda: kernels.head_linear(rows(1, 5), HeadLinear([matrix()]), Rows(1, 16), 2),
        "outside a head",
    ),
    "heads below their rows": (
        lambda: kernels.head_linear(rows(1, 5), HeadLinear([matrix()]), Rows(1, 16), -1),
        "outside a head",
    ),
    "rows that heads do not divide": (
        lambda: kernels.head_linear(rows(1, 9), HeadLinear([matrix()] * 2), Rows(1, 32)),
        "heads wide",
    ),
    "heads into another width": (
        lambda: kernels.head_linear(rows(1, 4), HeadLinear([matrix()]), Rows(1, 17)),
        "outputs",
    ),
    "heads into too few rows": (
        lambda: kernels.head_linear(rows(2, 4), HeadLinear([matrix()]), Rows(1, 16)),
        "rows",
    ),
    "heads into their own rows": (
        lambda: kernels.head_linear(same := rows(1, 16), HeadLinear([matrix(16, 16)]), same),
        "the same rows",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_refused_layer_of_heads_says_what_it_got() -> None:
    with pytest.raises(TypeError):
        # float64, which nobody converts
        HeadLinear([codes()], np.zeros((1, 2, 16)), 16)  # type: ignore[arg-type]
