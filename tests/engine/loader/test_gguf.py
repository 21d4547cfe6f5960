"""GGUF files: the container is bounded in everything, and read like the reference reader does."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, ColibriError, UnsupportedQuantFormat
from colibri_engine.loader.gguf import TYPES, GgufFile
from colibri_engine.quant.registry import FORMATS
from tests.fakes.tiny_gguf import write_gguf_model

Opener = Callable[[bytes], GgufFile]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def u32(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def array(key: str, element: int, count: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, element, count) + data


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<{len(shape)}Q", *reversed(shape))
    return text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", kind, offset)


def build(
    pairs: list[bytes] = [],  # noqa: B006 - never changed
    tensors: list[bytes] = [],  # noqa: B006
    data: bytes = b"",
    **changes: int,
) -> bytes:
    header = b"GGUF" + struct.pack(
        "<IQQ",
        changes.get("version", 3),
        changes.get("num_tensors", len(tensors)),
        changes.get("num_pairs", len(pairs)),
    )
    body = header + b"".join(pairs) + b"".join(tensors)
    return body + bytes(-len(body) % changes.get("alignment", 32)) + data


def refusal(path: Path, content: bytes, kind: type[ColibriError] = CheckpointError) -> str:
    path.write_bytes(content)
    with pytest.raises(kind) as caught:
        GgufFile(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.isprintable()
    assert caught.value.hint
    return message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[bytes], GgufFile]]:
    files: list[GgufFile] = []

    def open_content(content: bytes) -> GgufFile:
        path.write_bytes(content)
        files.append(GgufFile(path))
        return files[-1]

    yield open_content
    for file in files:
        file.close()


def test_every_kind_of_value_reads_as_the_reference_reads_it(path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -7)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -5)
    writer.add_uint64("u64", 1 << 63)
    writer.add_int64("i64", -(1 << 62))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", val=True)
    writer.add_string("s", "é世界")
    writer.add_array("words", ["a", "", "ccc"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.5, 1.5])
    writer.add_tensor("x", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("y", np.ones((2, 2, 4), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(path)
    found = dict(file.metadata)
    assert found.pop("numbers").tolist() == [1, -2, 3]
    assert found.pop("floats").tolist() == [0.5, 1.5]
    assert found == {
        "general.architecture": "test",
        "u8": 200, "i8": -7, "u16": 60000, "i16": -300, "u32": 4_000_000_000, "i32": -5,
        "u64": 1 << 63, "i64": -(1 << 62), "f32": 0.5, "f64": 0.1, "yes": True, "s": "é世界",
        "words": ["a", "", "ccc"],
    }  # fmt: skip
    assert file.tensors["x"].shape == (2, 3)
    assert file.tensors["y"].shape == (2, 2, 4)
    assert file.rows(file.tensors["x"], 1, 1).view("<f4").tolist() == [[3.0, 4.0, 5.0]]
    assert (file.rows(file.tensors["y"], 0, 4).view("<f2") == 1).all()
    file.close()


def test_type_table_agrees_with_the_reference() -> None:
    gguf = pytest.importorskip("gguf")
    for number, (name, block_size, block_bytes) in TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert kind.name == name
        assert gguf.GGML_QUANT_SIZES[kind] == (block_size, block_bytes)


@pytest.mark.parametrize("version", [2, 3])
def test_versions_two_and_three_are_read(opened: Opener, version: int) -> None:
    content = build([u32("n", 5)], [tensor("x", (8,))], bytes(32), version=version)
    assert opened(content).metadata == {"n": 5}


@pytest.mark.parametrize(
    ("version", "word"),
    [(1, "version 1"), (4, "version 4"), (0, "version 0"), (3 << 24, "big-endian")],
)
def test_other_versions_are_refused_by_name(path: Path, version: int, word: str) -> None:
    assert word in refusal(path, build(version=version, num_pairs=0))


@pytest.mark.parametrize("content", [b"", b"GGU", b"GGUF", b"PK\x03\x04" + bytes(100), bytes(23)])
def test_other_files_are_refused(path: Path, content: bytes) -> None:
    assert "is not a GGUF file" in refusal(path, content)


def test_a_small_alignment_is_honoured(opened: Opener) -> None:
    data = np.arange(2, dtype="<f4").tobytes() + np.ones(2, "<f4").tobytes()
    tensors = [tensor("x", (2,)), tensor("y", (2,), offset=8)]
    content = build([u32("general.alignment", 8)], tensors, data, alignment=8)
    file = opened(content)
    assert file.rows(file.tensors["y"], 0, 1).view("<f4").tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("alignment", [0, 3, 48, 1 << 21])
def test_an_impossible_alignment_is_refused(path: Path, alignment: int) -> None:
    assert "alignment" in refusal(path, build([u32("general.alignment", alignment)]))


@pytest.mark.parametrize("count", [2, 1 << 20, 1 << 32, 1 << 63, (1 << 64) - 1])
def test_counts_that_the_file_cannot_hold_are_refused(path: Path, count: int) -> None:
    refusal(path, build([u32("n", 5)], [tensor("x", (8,))], bytes(32), num_tensors=count))
    refusal(path, build([u32("n", 5)], [tensor("x", (8,))], bytes(32), num_pairs=count))


@pytest.mark.parametrize(
    "pair",
    [
        struct.pack("<Q", 1 << 40) + b"key",  # length of a key
        text("k" * 70_000) + struct.pack("<II", 4, 1),
        text("k") + struct.pack("<IQ", 8, 1 << 62),  # length of a string
        text("k") + struct.pack("<IQ", 8, 1000),
        text("k") + struct.pack("<I", 8) + text(b"\xff\xfe"),
        text(b"\xc3\x28") + struct.pack("<II", 4, 1),
        text("k") + struct.pack("<IB", 7, 2),  # a boolean
        text("k") + struct.pack("<I", 13),  # a type
        text("k") + struct.pack("<I", 0xFFFFFFFF),
        array("k", 4, 1 << 61, b""),
        array("k", 4, 1 << 23, b""),
        array("k", 8, 1 << 61, b""),
        array("k", 8, 1 << 20, b""),
        array("k", 8, 2, text("a") + struct.pack("<Q", 1 << 50)),
        array("k", 8, 1, text(b"\xff")),
        array("k", 9, 1 << 40, b""),
        array("k", 9, 1, struct.pack("<IQ", 9, 1) * 50),  # nested
        array("k", 99, 1, b""),
    ],
)
def test_hostile_metadata_is_refused_without_spending_memory(path: Path, pair: bytes) -> None:
    path.write_bytes(build([pair]) + bytes(200))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            GgufFile(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_arrays_of_arrays_are_read(opened: Opener) -> None:
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 1, 2)
    file = opened(build([array("k", 9, 1, inner)]))
    assert [part.tolist() for part in file.metadata["k"]] == [[1, 2]]


def test_long_arrays_of_strings_cross_the_reads(opened: Opener) -> None:
    words = [f"word{place}" * (place % 40) for place in range(60_000)]  # some 10 MB
    data = b"".join(map(text, words))
    file = opened(build([array("k", 8, len(words), data), u32("n", 1)]))
    assert file.metadata == {"k": words, "n": 1}


def test_a_key_that_stands_twice_is_refused(path: Path) -> None:
    assert "twice" in refusal(path, build([u32("n", 1), u32("n", 2)]))


def test_a_tensor_that_stands_twice_is_refused(path: Path) -> None:
    tensors = [tensor("x", (8,)), tensor("x", (8,), offset=32)]
    assert "twice" in refusal(path, build([], tensors, bytes(64)))


@pytest.mark.parametrize("rank", [0, 5, 1 << 31])
def test_ranks_are_one_to_four(path: Path, rank: int) -> None:
    bad = text("x") + struct.pack("<I", rank) + bytes(64)
    assert "dimensions" in refusal(path, build([], [bad], bytes(64)))


@pytest.mark.parametrize(
    "shape", [(0,), (1 << 62, 4), (1 << 32, 1 << 32), (1 << 63,), (0, 1 << 63, 3)]
)
def test_shapes_that_overflow_or_are_empty_are_refused(path: Path, shape: tuple[int, ...]) -> None:
    assert "impossible shape" in refusal(path, build([], [tensor("x", shape)], bytes(64)))


@pytest.mark.parametrize("kind", [4, 5, 31, 42, 200, 1 << 31])
def test_an_unknown_type_is_refused_with_the_supported_ones(path: Path, kind: int) -> None:
    path.write_bytes(build([], [tensor("x", (32,), kind)], bytes(64)))
    with pytest.raises(UnsupportedQuantFormat, match=f"unknown type {kind}") as caught:
        GgufFile(path)
    assert "Q4_K" in str(caught.value.hint)


NOT_READ = [number for number, (name, *_) in TYPES.items() if name.lower() not in FORMATS]


@pytest.mark.parametrize("kind", NOT_READ, ids=lambda kind: TYPES[kind][0])
def test_a_known_but_unsupported_type_is_refused_by_name(opened: Opener, kind: int) -> None:
    name, block_size, block_bytes = TYPES[kind]
    data = bytes(block_bytes + -block_bytes % 32)
    file = opened(build([], [tensor("x", (block_size,), kind)], data))
    with pytest.raises(UnsupportedQuantFormat, match=f"stored as {name}") as caught:
        file.format(file.tensors["x"])
    assert "Q4_K" in str(caught.value.hint)
    assert name not in str(caught.value.hint).split(": ")[1].split(", ")


def test_rows_are_whole_blocks(path: Path) -> None:
    assert "multiple of the 32" in refusal(path, build([], [tensor("x", (2, 40), 2)], bytes(96)))


def test_offsets_are_aligned(path: Path) -> None:
    assert "aligned" in refusal(path, build([], [tensor("x", (8,), offset=4)], bytes(64)))


def test_tensors_that_overlap_are_refused(path: Path) -> None:
    tensors = [tensor("x", (16,)), tensor("y", (8,), offset=32)]
    assert "tensors x and y overlap" in refusal(path, build([], tensors, bytes(64)))


@pytest.mark.parametrize("offset", [64, 1 << 40, (1 << 64) - 32])
def test_a_tensor_beyond_the_end_is_incomplete(path: Path, offset: int) -> None:
    content = build([], [tensor("x", (8,), offset=offset)], bytes(64))
    start = len(content) - 64
    message = refusal(path, content)
    assert f"expected {start + offset + 32} bytes, found {len(content)}" in message
    assert "looks incomplete" in message
    assert "tensor x" in message


def test_a_file_cut_by_a_thousand_bytes_names_both_sizes(path: Path) -> None:
    tiny = write_gguf_model(path)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"looks incomplete: expected \d+ bytes") as caught:
        GgufFile(tiny.path)
    assert f"found {whole - 1000}" in str(caught.value)


def test_a_file_cut_in_its_header_is_incomplete(path: Path) -> None:
    write_gguf_model(path)
    assert "looks incomplete" in refusal(path, path.read_bytes()[:3000])


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "x" * 600])
def test_names_that_cannot_be_printed_are_refused(path: Path, name: str) -> None:
    refusal(path, build([], [tensor(name, (8,))], bytes(32)))


def test_rows_are_read_alone(opened: Opener) -> None:
    values = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    file = opened(build([], [tensor("x", (2, 3, 4))], values.tobytes()))
    found = file.rows(file.tensors["x"], 3, 2).view("<f4")
    np.testing.assert_array_equal(found, values.reshape(6, 4)[3:5])
