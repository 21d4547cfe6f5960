"""Conversations of the original engine are gone on from when they are whole and fit."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.kernels import KvReader
from tests.engine.kv_files.resume_rig import ask, fresh, saving, warnings_of, write_model
from tests.engine.model_rig import prompt_of, start
from tests.fakes.tiny_checkpoint import VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

LATENT, ROPE, INDEX = 32, 8, 16
PROMPT = prompt_of(120)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], npt.NDArray[np.float32]]:
    """Ids and rows of a conversation, as our engine computes them."""
    engine: Any = start(write_model(tmp_path_factory.mktemp("m") / "m", "glm_moe_dsa"))
    turn = ask(engine, PROMPT)
    cache = engine._slots[0].cache
    found = np.empty((cache.length, cache.row_dim), np.float32)
    KvReader(cache).read_rows(0, found)
    return [*PROMPT, *turn.ids[:-1]], found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "glm_moe_dsa")


def split(row: npt.NDArray[np.float32], full: list[bool]) -> bytes:
    """Return one row in that engine's order: all layers' latents and keys, then the index keys."""
    latents, index_keys = b"", b""
    for is_full in full:
        latent, key, row = row[:LATENT], row[LATENT : LATENT + ROPE], row[LATENT + ROPE :]
        latents += latent.tobytes() + key[0::2].tobytes() + key[1::2].tobytes()
        if is_full:
            turned, rest, row = row[:ROPE], row[ROPE:INDEX], row[INDEX:]
            index_keys += turned[0::2].tobytes() + turned[1::2].tobytes() + rest.tobytes()
    assert row.size == 0
    return latents + index_keys


def written(
    ids: list[int], rows: npt.NDArray[np.float32], full: list[bool], **header: int
) -> bytes:
    sizes = {
        "layers": len(full),
        "latent": LATENT,
        "rope": ROPE,
        "index": INDEX,
        "index_layers": sum(full),
        "vocab": VOCAB_SIZE,
        "records": len(ids),
        "zero": 0,
    } | header
    data = struct.pack("<8s8i", b"COLIKV1\0", *sizes.values())
    for token_id, row in zip(ids, rows, strict=True):
        data += struct.pack("<i", token_id) + split(row, full)
    return data


def full_layers(model: Path) -> list[bool]:
    engine: Any = start(model)
    return [layout.index_dim > 0 for layout in engine._model.make_cache().layouts]


def test_its_rows_are_ours(
    model: Path,
    rows: tuple[list[int], npt.NDArray[np.float32]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids, values = rows
    path = model / ".coli_kv"
    path.write_bytes(written(ids, values, full_layers(model)))
    longer = [*ids, 9, 8, 7]
    with saving(model) as engine:
        (told,) = warnings_of(caplog)
        assert str(path) in told
        assert "other roundings" in told
        turn = ask(engine, longer)
    assert turn.num_reused == len(ids)
    assert turn.same_as(fresh(model, longer))
    with saving(model) as engine:  # now in our format
        assert path.read_bytes()[:8] == b"COLI-KV\0"
        assert ask(engine, [*longer, *turn.ids]).num_reused == len(longer) + 11
    assert not warnings_of(caplog)


def with_a_number_that_is_none(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<f", float("nan"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:20], "cut short"),
        (with_a_number_that_is_none, "not finite"),
        (lambda data: data[:40] + struct.pack("<i", -1) + data[44:], "tokens"),
        (lambda data: data[:40] + struct.pack("<i", VOCAB_SIZE) + data[44:], "tokens"),
        (lambda data: data[:32] + struct.pack("<i", -1) + data[36:], "-1 tokens"),
        (lambda data: data[:32] + struct.pack("<i", 601) + data[36:], "601 tokens"),
    ],
)
def test_what_is_damaged_is_not_used(
    change: Callable[[bytes], bytes],
    reason: str,
    model: Path,
    rows: tuple[list[int], npt.NDArray[np.float32]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids, values = rows
    data = written(ids, values, full_layers(model))
    (model / ".coli_kv").write_bytes(change(data))
    with saving(model) as engine:
        told = [text for text in warnings_of(caplog) if "is not used" in text]
        assert len(told) == 1
        assert reason in told[0]
        assert ask(engine, [*ids, 9]).num_reused == 0


@pytest.mark.parametrize("field", ["layers", "latent", "rope", "index", "index_layers", "vocab"])
def test_other_sizes_are_not_used(
    field: str,
    model: Path,
    rows: tuple[list[int], npt.NDArray[np.float32]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids, values = rows
    (model / ".coli_kv").write_bytes(written(ids, values, full_layers(model), **{field: 5}))
    with saving(model):
        assert "model of other sizes" in warnings_of(caplog)[0]


def test_other_architectures_do_not_use_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path / "model", "llama")
    (model / ".coli_kv").write_bytes(written([], np.empty((0, 0), np.float32), [True]))
    with saving(model):
        assert "another kind of model" in warnings_of(caplog)[0]
