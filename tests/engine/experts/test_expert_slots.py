"""Slots give their memory back, and matrices in them are what a copy would be."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.kernels import Expert, Linear, Matrix, ReadEngine, SlotArena
from colibri_engine.machine import resident_bytes
from colibri_engine.quant.base import IntTensor, Scales
from colibri_engine.quant.tiles import PackedTensor, TileLayout, pack_matrix
from tests.engine.experts.conftest import drain
from tests.engine.kernels.conftest import apply

MIB = 1 << 20


def test_only_slots_in_use_are_resident_and_given_back_they_are_not() -> None:
    before = resident_bytes()
    arena = SlotArena(4096, 16 * MIB)  # 64 GiB of addresses
    assert resident_bytes() - before < 16 * MIB
    for slot in range(8):
        arena.array(slot)[:] = slot + 1
    full = resident_bytes()
    assert full - before >= 7 * 16 * MIB  # the rest of the process may have shrunk
    for slot in range(4, 8):
        arena.release(slot)
    assert full - resident_bytes() >= 4 * 16 * MIB - 4 * MIB
    assert (arena.array(3) == 4).all()
    assert not arena.array(4).any()
    del arena
    gc.collect()
    assert full - resident_bytes() >= 6 * 16 * MIB  # the rest of the process may have grown


def test_small_slots_are_given_back_one_by_one() -> None:
    arena = SlotArena(4096, 16384)
    for slot in range(4096):
        arena.array(slot)[:] = 7
    full = resident_bytes()
    for slot in range(0, 4096, 2):
        arena.release(slot)
    assert full - resident_bytes() >= 30 * MIB
    assert (arena.array(1) == 7).all()


def test_slots_are_whole_blocks_and_checked() -> None:
    arena = SlotArena(3, 4097)
    assert (arena.num_slots, arena.slot_bytes) == (3, 8192)
    assert arena.array(1).ctypes.data % 4096 == 0
    for slot in (-1, 3):
        with pytest.raises(IndexError, match=f"slot {slot} is outside 0..2"):
            arena.array(slot)
        with pytest.raises(IndexError):
            arena.release(slot)
    with pytest.raises(ValueError, match="num_slots"):
        SlotArena(0, 4096)
    with pytest.raises(ValueError, match="slot_bytes"):
        SlotArena(1, 0)


def test_a_slot_is_not_given_back_while_it_is_read_into(path: Path) -> None:
    engine = ReadEngine("threads", num_threads=1)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(2, 8 * MIB)
    for tag in range(20):
        engine.submit(tag, file, 0, 8 * MIB, arena, 1)
    with pytest.raises(ValueError, match="slot 1 is being read into"):
        arena.release(1)
    arena.release(0)
    engine.close()
    arena.release(1)


def random_tensor(
    rng: np.random.Generator, shape: tuple[int, int], bits: int, *, mins: bool, half: bool
) -> PackedTensor:
    """Return a packed matrix with groups of 64."""
    rows, inputs = shape
    groups = (rows, -(-inputs // 64))

    def values(low: float, high: float) -> Scales:
        drawn = rng.uniform(low, high, groups)
        return drawn.astype(np.float16) if half else drawn.astype(np.float32)

    tensor = IntTensor(
        codes=rng.integers(0, 2**bits, shape, dtype=np.uint8),
        scales=values(0.01, 0.1),
        zero=None if mins else 1 << (bits - 1),
        mins=values(-1, 0) if mins else None,
        bits=bits,
        group=64,
    )
    return PackedTensor(pack_matrix(tensor), TileLayout.of(tensor))


def copy_of(tensor: PackedTensor) -> Matrix:
    layout = tensor.layout
    return Matrix.from_packed(
        tensor.packed,
        (layout.num_outputs, layout.num_inputs),
        layout.zero,
        bits=layout.bits,
        group=layout.group,
        scale_bytes=layout.scale_bytes,
    )


def view_of(layout: TileLayout, arena: SlotArena, slot: int, offset: int) -> Matrix:
    return Matrix.view_packed(
        arena,
        slot,
        offset,
        (layout.num_outputs, layout.num_inputs),
        layout.zero,
        bits=layout.bits,
        group=layout.group,
        scale_bytes=layout.scale_bytes,
    )


@pytest.mark.parametrize("half", [True, False], ids=["f16", "f32"])
@pytest.mark.parametrize("mins", [True, False], ids=["mins", "zero"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_a_view_gives_the_bits_of_a_copy(
    rng: np.random.Generator, bits: int, mins: bool, half: bool, numerics: str
) -> None:
    arena = SlotArena(2, MIB)
    first = random_tensor(rng, (70, 200), bits, mins=mins, half=half)
    view = view_of(first.layout, arena, 1, 128)
    layer = Linear([view], None, numerics)
    x = rng.standard_normal((3, 200)).astype(np.float32)
    # One object serves whatever matrix of these sizes is in the slot.
    for tensor in (first, random_tensor(rng, (70, 200), bits, mins=mins, half=half)):
        arena.array(1)[128 : 128 + tensor.packed.size] = tensor.packed
        copy = copy_of(tensor)
        assert (view.kind, view.nbytes) == (copy.kind, copy.nbytes)
        assert view.has_finite_scales()
        np.testing.assert_array_equal(view.packed(), tensor.packed)
        np.testing.assert_array_equal(view.unpack(), copy.unpack())
        np.testing.assert_array_equal(apply(layer, x), apply(Linear([copy], None, numerics), x))


def test_a_record_that_was_read_is_the_expert_that_was_written(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    parts = [
        random_tensor(rng, shape, 4, mins=False, half=True)
        for shape in ((96, 128), (96, 128), (128, 96))
    ]
    record = np.concatenate([part.packed for part in parts])
    record = np.pad(record, (0, -record.size % 4096))
    file = tmp_path / "layer.bin"
    np.concatenate([np.zeros(4096, np.uint8), record]).tofile(file)
    arena = SlotArena(1, record.size)
    offsets = np.cumsum([0] + [part.packed.size for part in parts])
    views = [view_of(p.layout, arena, 0, int(o)) for p, o in zip(parts, offsets, strict=False)]
    expert = Expert(Linear(views[:2]), Linear(views[2:]))
    engine = ReadEngine()
    engine.submit(1, engine.open(str(file), direct=True), 4096, record.size, arena, 0)
    assert [c.error for c in drain(engine)] == [0]
    engine.close()
    for view, part in zip(views, parts, strict=True):
        np.testing.assert_array_equal(view.packed(), part.packed)
    del arena  # the views keep it
    gc.collect()
    assert views[2].unpack().shape == (128, 96)
    assert expert is not None


@pytest.mark.parametrize("half", [True, False], ids=["f16", "f32"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_scale_that_is_no_number_is_found(
    rng: np.random.Generator, half: bool, value: float
) -> None:
    tensor = random_tensor(rng, (40, 256), 4, mins=True, half=half)
    arena = SlotArena(1, MIB)
    arena.array(0)[: tensor.packed.size] = tensor.packed
    view = view_of(tensor.layout, arena, 0, 0)
    assert view.has_finite_scales()
    dtype = np.float16 if half else np.float32
    for place in (tensor.layout.codes_nbytes, tensor.layout.nbytes - 64 - 64 % 64):
        scales = arena.array(0)[place : place + 64].view(dtype)
        kept, scales[3] = scales[3], value
        assert not view.has_finite_scales()
        scales[3] = kept
    assert view.has_finite_scales()


def test_views_that_do_not_fit_their_slot_are_refused(rng: np.random.Generator) -> None:
    layout = random_tensor(rng, (64, 256), 8, mins=False, half=False).layout
    arena = SlotArena(1, layout.nbytes)
    room = arena.slot_bytes - layout.nbytes
    view_of(layout, arena, 0, room // 64 * 64)
    for offset, problem in (
        (room // 64 * 64 + 64, "room"),
        (32, "aligned"),
        (-64, "outside the slot"),
        (1 << 40, "outside the slot"),
    ):
        with pytest.raises(ValueError, match=problem):
            view_of(layout, arena, 0, offset)
    with pytest.raises(IndexError):
        view_of(layout, arena, 1, 0)
