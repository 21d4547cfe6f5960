"""Safetensors files: whole and consistent, or refused with file, tensor and sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.safetensors import DTYPE_BITS, MAX_HEADER_BYTES, SafetensorsFile
from tests.fakes.tiny_checkpoint import write_safetensors


def write_raw(path: Path, header: object, data: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    count = len(text) if length is None else length
    path.write_bytes(count.to_bytes(8, "little") + text + data)
    return path


def entry(
    dtype: object = "F32", shape: object = (2, 3), offsets: object = (0, 24)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_a_file_of_the_reference_library_reads_the_same(tmp_path: Path) -> None:
    numpy_writer = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b.half": rng.standard_normal((7,)).astype(np.float16),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(2.5, np.float32),
        "ids": np.arange(6, dtype=np.int64).reshape(2, 3),
    }
    path = tmp_path / "model.safetensors"
    numpy_writer.save_file(arrays, path, metadata={"format": "np"})
    file = SafetensorsFile(path)
    assert file.metadata == {"format": "np"}
    assert set(file.entries) == set(arrays)
    for name, array in arrays.items():
        found = file.read(file.entries[name]).view(array.dtype).reshape(file.entries[name].shape)
        np.testing.assert_array_equal(found, array)
    file.close()


def test_our_writer_is_read_by_the_reference_library(tmp_path: Path) -> None:
    numpy_reader = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    values = np.arange(6, dtype=np.float32)
    write_safetensors(path, {"x": ("F32", (2, 3), values.tobytes())}, {"k": "v"})
    np.testing.assert_array_equal(numpy_reader.load_file(path)["x"], values.reshape(2, 3))


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_every_dtype_of_the_format_is_sized(tmp_path: Path, dtype: str) -> None:
    count = DTYPE_BITS[dtype] * 8 // 8
    path = write_raw(tmp_path / "m", {"x": entry(dtype, (8,), (0, count))}, bytes(count))
    file = SafetensorsFile(path)
    assert file.entries["x"].nbytes == count
    file.close()
    refusal(write_raw(tmp_path / "m", {"x": entry(dtype, (8,), (0, count + 1))}, bytes(count + 1)))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_without_room_for_a_header_is_incomplete(tmp_path: Path, size: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(size))
    assert f"looks incomplete: expected at least 8 bytes, found {size}" in str(refusal(path))


def test_a_cut_header_is_incomplete(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "m", {"x": entry()}, length=500)
    assert "looks incomplete: expected at least 508 bytes" in str(refusal(path))


def test_a_cut_file_names_both_sizes_and_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00002.safetensors"
    write_safetensors(path, {"x": ("U8", (2000,), bytes(2000))})
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1000])
    error = refusal(path)
    assert f"expected at least {whole} bytes, found {whole - 1000}" in str(error)
    assert "looks incomplete" in str(error)
    assert error.tensor == "x"


def test_bytes_after_the_last_tensor_are_refused(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "m", {"x": entry()}, bytes(25))
    assert "what follows is unknown" in str(refusal(path))


def test_a_huge_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        file.truncate(MAX_HEADER_BYTES + 100)  # sparse
    assert "more than" in str(refusal(path))


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"", b"{", b'{"x": NaN}', b"\xff\xfe", b'"x"', b"null", b"[" * 100_000,
        b'{"a":' * 50_000, b'{"x": 1, "x": 1}', b'{"x": 1e}', b"9" * 10_000,
    ],
)  # fmt: skip
def test_a_header_that_is_no_json_object_is_refused(tmp_path: Path, header: bytes) -> None:
    refusal(write_raw(tmp_path / "m", header, bytes(24)))


def test_a_header_of_too_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    header = b'{"x":[' + b"[]," * 6_000_001 + b"0]}"
    assert "values" in str(refusal(write_raw(tmp_path / "m", header)))


@pytest.mark.parametrize("place", ["dtype", "shape", "data_offsets", "extra"])
def test_deep_nesting_is_refused(tmp_path: Path, place: str) -> None:
    for depth in (40, 300, 900, 5000):
        deep = b"[" * depth + b"]" * depth
        body = b'{"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"extra":1}'
        key = f'"{place}":'.encode()
        start = body.index(key) + len(key)
        end = start + min(n for n in map(body[start:].find, (b',"', b"}")) if n >= 0)
        header = b'{"x":' + body[:start] + deep + body[end:] + b"}"
        refusal(write_raw(tmp_path / "m", header, bytes(24)))


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    one = json.dumps(entry()).encode()
    header = b'{"x":' + one + b',"x":' + one + b"}"
    assert "twice" in str(refusal(write_raw(tmp_path / "m", header, bytes(24))))


@pytest.mark.parametrize(
    "body",
    [
        None, 1, [], "F32", {},
        {"dtype": "F32", "shape": [2, 3]},
        {"dtype": "F32", "data_offsets": [0, 24]},
        {"shape": [2, 3], "data_offsets": [0, 24]},
        {**entry(), "more": 1},
        entry("F33"), entry(None), entry(32), entry("f32"),
        entry(shape="23"), entry(shape=6), entry(shape=None), entry(shape=(2, -3)),
        entry(shape=(2, 3.0)), entry(shape=(2, True)), entry(shape=(2, "3")), entry(shape=([2], 3)),
        entry(shape=(1,) * 7 + (2, 3)),  # nine dimensions
        entry(shape=(1 << 62, 4)), entry(shape=(1 << 32, 1 << 32)), entry(shape=(0, 1 << 70)),
        entry(offsets=(24, 0)), entry(offsets=(-24, 0)), entry(offsets=(0,)), entry(offsets=None),
        entry(offsets=(0, 12, 24)), entry(offsets=(0, 24.0)), entry(offsets=(0, 1 << 64)),
        entry(offsets=(False, 24)),
        entry(shape=(2, 4)), entry(shape=(2, 2)), entry("F16"), entry("F64"),
    ],
)  # fmt: skip
def test_an_entry_that_does_not_add_up_is_refused_by_name(tmp_path: Path, body: object) -> None:
    error = refusal(write_raw(tmp_path / "m", {"layer.weight": body}, bytes(24)))
    assert "layer.weight" in str(error)
    assert error.tensor == "layer.weight"


def test_a_shape_that_does_not_fit_its_bytes_names_both(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "m", {"x": entry("F32", (4, 9), (0, 128))}, bytes(128))
    assert "shape [4, 9] of F32 needs 144 bytes, its range has 128" in str(refusal(path))


def test_ranges_that_overlap_are_refused(tmp_path: Path) -> None:
    header = {"x": entry(), "y": entry(offsets=(20, 44))}
    assert "overlaps that of x" in str(refusal(write_raw(tmp_path / "m", header, bytes(44))))


def test_two_names_for_one_range_are_refused(tmp_path: Path) -> None:
    refusal(write_raw(tmp_path / "m", {"x": entry(), "y": entry()}, bytes(24)))


@pytest.mark.parametrize("metadata", [1, [], {"a": 1}, {"a": {}}, "x"])
def test_metadata_is_an_object_of_strings(tmp_path: Path, metadata: object) -> None:
    header = {"__metadata__": metadata, "x": entry()}
    assert "__metadata__" in str(refusal(write_raw(tmp_path / "m", header, bytes(24))))


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "\ud800", "x" * 513, "a\x1b[31m"])
def test_a_name_that_could_not_be_printed_is_refused(tmp_path: Path, name: str) -> None:
    refusal(write_raw(tmp_path / "m", {name: entry()}, bytes(24)))


def test_a_file_cut_while_it_is_open_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "m", {"x": entry("U8", (1 << 20,), (0, 1 << 20))}, bytes(1 << 20))
    file = SafetensorsFile(path)
    with path.open("r+b") as other:
        other.truncate(1000)
    with pytest.raises(CheckpointError, match="looks incomplete"):
        file.read(file.entries["x"])
    file.close()


def test_a_closed_file_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    file = SafetensorsFile(write_raw(tmp_path / "m", {"x": entry()}, bytes(24)))
    file.close()
    with pytest.raises(CheckpointError, match="cannot read"):
        file.read(file.entries["x"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*m\.safetensors: No such file"):
        SafetensorsFile(tmp_path / "m.safetensors")
