"""Experts rounded to the lattice: the encoder's choices, and whole conversions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.conversion.e8_encoding import encode
from colibri_engine.conversion.options import ConvertOptions, Layout
from colibri_engine.errors import BadChoice, CheckpointError
from colibri_engine.quant import e8
from colibri_engine.quant.base import IntTensor, MatrixShape
from colibri_engine.quant.rotation import rotate, rotate_back
from tests.engine.conversion.rig import (
    convert,
    formats,
    logits,
    options,
    values,
    write_source,
    write_weights,
)

TAG = np.array([e8.TAG], "<f4").view(np.uint8)


def decoded(raw: np.ndarray, num_inputs: int) -> np.ndarray:
    """Return the rotated values that bytes (R, …) stand for."""
    stored = e8.FORMAT.to_stored(raw, TAG, MatrixShape(len(raw), num_inputs))
    assert isinstance(stored, IntTensor)
    return stored.stored_values()


def rows_of(count: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-4, 3, (count, 1))
    return (rng.standard_normal((count, width)) * sizes).astype(np.float32)


# ---- the encoder --------------------------------------------------------------------------------


def least_errors(block: np.ndarray) -> np.ndarray:
    """Return for a rotated block of 256 the least squared error of every 32, all codes tried."""
    d = np.float64(np.float16(np.sqrt(np.square(block, dtype=np.float64).mean()) / 20))
    quads = np.abs(block).astype(np.float64).reshape(8, 8, 4)
    steps = d * (np.arange(16) + 0.5) / 4
    rounded = steps[:, None, None] * e8.GRID  # (16, 256, 4)
    distances = np.square(quads[:, :, None, None] - rounded).sum(axis=-1)  # (8, 8, 16, 256)
    least: np.ndarray = distances.min(axis=3).sum(axis=1).min(axis=1)
    return least


def test_no_other_code_or_table_entry_would_err_less() -> None:
    rows = rows_of(12, 512)
    found = np.abs(decoded(encode(rows), 512)).reshape(-1, 256)
    for block, magnitudes in zip(rotate(rows).reshape(-1, 256), found, strict=True):
        errors = np.square(np.abs(block).astype(np.float64) - magnitudes).reshape(8, 32).sum(axis=1)
        np.testing.assert_allclose(errors, least_errors(block), rtol=1e-4)


def test_signs_are_kept_but_for_the_least_of_an_odd_eight() -> None:
    rows = rows_of(8, 256)
    wanted = rotate(rows).reshape(-1, 8)
    found = decoded(encode(rows), 256).reshape(-1, 8)
    for eight, kept in zip(wanted, found, strict=True):
        differ = np.flatnonzero((eight < 0) != (kept < 0))
        is_odd = (eight < 0).sum() % 2 == 1
        assert differ.tolist() == ([int(np.abs(eight).argmin())] if is_odd else [])


def test_what_the_format_holds_comes_back() -> None:
    rng = np.random.default_rng(6)
    magnitudes = e8.GRID[rng.integers(0, 256, 64)].reshape(1, 256).astype(np.float32)
    signs = np.where(rng.random(128) < 0.5, np.float32(-1), np.float32(1)).repeat(2)  # even
    wanted = magnitudes * signs * np.float32(0.01)
    found = decoded(encode(rotate_back(wanted)), 256)
    np.testing.assert_allclose(found, wanted, atol=0.1 * np.abs(wanted).max())


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-8, 1e-5, 1e4, 1e7])
def test_sizes_at_the_edges_of_a_half_float(size: float) -> None:
    rows = (rows_of(1, 256) * 0 + np.float32(size)).astype(np.float32)
    assert np.isfinite(decoded(encode(rows), 256)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    rows = rows_of(2, 256)
    rows[1, 3] = bad
    with pytest.raises(ValueError, match="not finite"):
        encode(rows)


def test_rows_give_the_same_bytes_however_they_are_cut() -> None:
    rows = rows_of(40, 768)
    parts = [encode(rows[first : first + 7]) for first in range(0, 40, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), encode(rows))


# ---- conversions --------------------------------------------------------------------------------

WIDE: dict[str, Any] = {"hidden_size": 256, "moe_intermediate_size": 512}


def lattice(layout: Layout = Layout.PAIRS, **bits: str) -> ConvertOptions:
    return options(layout, xbits=bits.pop("xbits", "e8"), **bits)  # type: ignore[arg-type]


def test_experts_in_three_bits(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", **WIDE)
    convert(source.path, tmp_path / "e8", lattice())
    found = values(tmp_path / "e8")
    names = {name for name, stored in formats(tmp_path / "e8").items() if stored == e8.FORMAT.name}
    assert names == {name for name in found if ".mlp.experts." in name}
    assert names
    for name in names:
        wanted = source.weights[name]
        error = np.square(found[name] - wanted).mean() / np.square(wanted).mean()
        assert error < 0.04, name  # of the energy
    ids = np.arange(20, dtype=np.int32)
    plain = write_weights(tmp_path / "plain", source.config, found)
    np.testing.assert_allclose(logits(tmp_path / "e8", ids), logits(plain.path, ids), atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "bits", "text"),
    [
        (Layout.PAIRS, {"xbits": "4", "gate_bits": "e8"}, "beside matrices in e8"),
        (Layout.PAIRS, {"down_bits": "4"}, "beside matrices in e8"),
        (Layout.PAIRS, {"ebits": "e8"}, "--ebits e8 is not possible: only routed experts"),
        (Layout.PAIRS, {"io_bits": "e8"}, "--io-bits e8 is not possible: only routed experts"),
        (Layout.PAIRS, {"mtp_bits": "e8"}, "--mtp-bits e8 is not possible: only routed experts"),
        (Layout.STREAM, {}, "--xbits e8 cannot be combined with --layout stream"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, layout: Layout, bits: dict[str, str], text: str
) -> None:
    source = write_source(tmp_path / "source", **WIDE)
    with pytest.raises(BadChoice, match=text):
        convert(source.path, tmp_path / "out", lattice(layout, **bits))
    assert not (tmp_path / "out").exists()


def test_rows_must_be_whole_blocks(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", hidden_size=256, moe_intermediate_size=96)
    with pytest.raises(BadChoice, match=r"\[256, 96\] cannot be e8: .* multiples of 256"):
        convert(source.path, tmp_path / "out", lattice())


def test_a_value_that_is_no_number_is_named(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.experts.1.up_proj.weight"
    source = write_source(tmp_path / "source", **WIDE)
    source.weights[name][-1, -1] = np.nan
    spoiled = write_weights(tmp_path / "spoiled", source.config, source.weights)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        convert(spoiled.path, tmp_path / "out", lattice())
