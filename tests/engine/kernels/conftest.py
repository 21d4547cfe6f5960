"""Rows and layers for kernel tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import KvCache, LayerLayout, Linear, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tests.engine.kernels.reference import F32


def rows_of(array: npt.NDArray[np.floating], capacity: int | None = None) -> Rows:
    """Return rows that hold a copy of `array` (N, width)."""
    rows = Rows(capacity or max(1, len(array)), array.shape[1])
    rows.rows = len(array)
    rows.array[:] = array
    return rows


def gqa_cache(layers: int, kv_heads: int, head_dim: int) -> KvCache:
    """Return an empty cache of equal layers with keys and values."""
    return KvCache([LayerLayout(num_kv_heads=kv_heads, head_dim=head_dim)] * layers)


def apply(layer: Linear, x: F32) -> F32:
    """Return what a layer makes of x (N, I), as a copy."""
    out = Rows(max(1, len(x)), layer.num_outputs)
    kernels.linear(rows_of(x), layer, out)
    return out.array.copy()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Run with two threads, whatever a test before or the machine says."""
    before = kernels.num_threads()
    kernels.set_num_threads(2)
    yield
    kernels.set_num_threads(before)
