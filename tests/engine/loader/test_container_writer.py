"""Files of the streaming layout: where things lie, what is refused, what a crash leaves."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.kernels import Matrix
from colibri_engine.loader.container_writer import StreamContents, StreamShard
from colibri_engine.loader.safetensors import SafetensorsFile
from colibri_engine.loader.shard_writer import ShardWriter, TensorSpec, aligned_order
from colibri_engine.loader.stream_layout import (
    DIGEST_KEY,
    EXPERTS_KEY,
    LAYOUT_KEY,
    MATRICES_KEY,
    PARTS,
    ExpertRecord,
    decode_experts,
    decode_matrices,
)
from colibri_engine.quant.base import IntTensor
from colibri_engine.quant.tiles import TileLayout, unpack_matrix
from tests.engine.quant.test_tiles import random_tensor

PREFIX = "model.layers.1.mlp.experts"


def expert(number: int) -> dict[str, IntTensor]:
    shapes = {"gate_proj": (48, 96), "up_proj": (48, 96), "down_proj": (96, 48)}
    group = {"gate_proj": 32, "up_proj": 64, "down_proj": 48}
    return {
        part: random_tensor(shapes[part], bits=8 if part == "down_proj" else 4, group=group[part])
        for part in PARTS
    }


def write_shard(path: Path, num_experts: int = 3) -> tuple[str, IntTensor]:
    record = ExpertRecord.of(
        {part: (TileLayout.of(tensor), "int4-grouped") for part, tensor in expert(0).items()}
    )
    matrix = random_tensor((40, 96), bits=8, group=96)
    contents = StreamContents()
    for number in range(num_experts):
        contents.add_expert(PREFIX, number, record)
    contents.add_matrix("model.layers.1.self_attn.o_proj.weight", TileLayout.of(matrix), "int8-row")
    contents.add_floats("model.norm.weight", "F32", (96,))
    with StreamShard(path, contents) as shard:
        shard.write_matrix("model.layers.1.self_attn.o_proj.weight", matrix)
        for number in reversed(range(num_experts)):
            shard.write_expert(f"{PREFIX}.{number}", expert(number))
        shard.write_floats("model.norm.weight", np.arange(96, dtype=np.float32))
        return shard.finish().sha256, matrix


def test_one_read_of_a_record_gives_the_matrices_as_the_kernels_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00001.safetensors"
    write_shard(path)
    file = SafetensorsFile(path)
    assert file.metadata[LAYOUT_KEY] == "stream-1"
    record = decode_experts(file.metadata[EXPERTS_KEY], path)[PREFIX]
    for number in range(3):
        entry = file.entries[f"{PREFIX}.{number}"]
        assert entry.dtype == "U8"
        assert entry.offset % 4096 == 0
        assert entry.nbytes == record.nbytes
        assert entry.nbytes % 4096 == 0
        data = file.read(entry)
        for part, tensor in expert(number).items():
            place = record.parts[part]
            assert place.offset % 64 == 0
            packed = data[place.offset : place.end]
            native = Matrix.from_codes(
                tensor.codes, tensor.scales, 1 << (tensor.bits - 1), None,
                bits=tensor.bits, group=tensor.group,
            )  # fmt: skip
            np.testing.assert_array_equal(packed, native.packed())
    file.close()


def test_other_tensors_are_packed_matrices_and_plain_floats(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    _, matrix = write_shard(path)
    file = SafetensorsFile(path)
    name = "model.layers.1.self_attn.o_proj.weight"
    place = decode_matrices(file.metadata[MATRICES_KEY], path)[name]
    assert place.format == "int8-row"
    found = unpack_matrix(file.read(file.entries[name]), place.layout)
    np.testing.assert_array_equal(found.codes, matrix.codes)
    norm = file.entries["model.norm.weight"]
    np.testing.assert_array_equal(file.read(norm).view(np.float32), np.arange(96))
    file.close()


def test_the_reference_reader_of_the_format_opens_the_file(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "model.safetensors"
    write_shard(path)
    with safe_open(path, framework="numpy") as file:
        assert len(list(file.keys())) == 5
        assert file.metadata()[LAYOUT_KEY] == "stream-1"
        np.testing.assert_array_equal(file.get_tensor("model.norm.weight"), np.arange(96))


def test_the_digest_is_that_of_the_file_with_zeros_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    digest, _ = write_shard(path)
    file = SafetensorsFile(path)
    assert file.metadata[DIGEST_KEY] == digest
    file.close()
    data = path.read_bytes()
    assert data.count(digest.encode()) == 1
    assert hashlib.sha256(data.replace(digest.encode(), b"0" * 64)).hexdigest() == digest


def test_the_same_contents_give_the_same_bytes(tmp_path: Path) -> None:
    write_shard(tmp_path / "a")
    write_shard(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path) -> None:
    def write_half() -> None:
        with ShardWriter(tmp_path / "x.safetensors", [TensorSpec("a", "U8", (8,))], {}) as writer:
            writer.write("a", np.zeros(4, np.uint8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_reads_back_differently_never_gets_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with ShardWriter(path, [TensorSpec("a", "U8", (64,))], {}) as writer:
        writer.write("a", np.zeros(64, np.uint8))
        with (tmp_path / ".x.safetensors.partial").open("r+b") as disk:
            disk.seek(-1, 2)
            disk.write(b"\1")
        with pytest.raises(CheckpointError, match=r"reads back other bytes .*tensor a"):
            writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_plain_files_are_byte_for_byte_those_of_the_usual_writer(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[Any]] = {
        "b.weight": rng.integers(0, 255, 30, dtype=np.uint8),
        "a.weight": rng.integers(0, 255, 7, dtype=np.uint8),
        "b.weight.qs": rng.standard_normal(5).astype(np.float32),
        "norm": rng.standard_normal((2, 3)).astype(np.float32),
        "half": rng.standard_normal(3).astype(np.float16),
    }
    kinds = {"uint8": "U8", "float32": "F32", "float16": "F16"}
    specs = [TensorSpec(name, kinds[a.dtype.name], a.shape) for name, a in arrays.items()]
    for metadata in ({}, {"colibri.fmt": '{"a.weight":"int8-row"}'}):
        save_file(arrays, tmp_path / "wanted", metadata or None)
        with ShardWriter(tmp_path / "found", aligned_order(specs), metadata) as writer:
            for name, array in arrays.items():
                writer.write(name, array.reshape(-1).view(np.uint8))
            writer.finish()
        assert (tmp_path / "found").read_bytes() == (tmp_path / "wanted").read_bytes()


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_full_disk_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """At the header, when nobody has the writer yet, and behind it."""
    real = ShardWriter._put
    written: list[int] = []

    def put(writer: ShardWriter, offset: int, data: bytes | memoryview) -> None:
        if len(written) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(offset)
        real(writer, offset, data)

    monkeypatch.setattr(ShardWriter, "_put", put)
    spec = TensorSpec("a", "U8", (64,))
    with (
        pytest.raises(OSError, match="No space left"),
        ShardWriter(tmp_path / "found", [spec], {}) as writer,
    ):
        writer.write("a", np.zeros(64, np.uint8))
    assert list(tmp_path.iterdir()) == []


def _metadata(tmp_path: Path, key: str) -> dict[str, object]:
    path = tmp_path / "model.safetensors"
    write_shard(path)
    file = SafetensorsFile(path)
    file.close()
    body: dict[str, object] = json.loads(file.metadata[key])
    return body


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("shape", [0, 96], "has the shape"),
        ("shape", [1 << 40, 96], "has the shape"),
        ("shape", "48", "has the shape"),
        ("bits", 5, "bits"),
        ("bits", True, "bits"),
        ("group", 24, "groups of 24"),
        ("group", -16, "groups of -16"),
        ("zero", 16, "zero point 16"),
        ("scales", "F64", "scales of type F64"),
        ("scales", None, "scales of type None"),
        ("rotated", 0, "whether it is rotated"),
        ("offset", 32, "offset 32"),
        ("offset", 0, "overlap"),
        ("offset", 1 << 20, "bytes between"),
        ("group", 1 << 20, "bytes between"),
        ("format", "", "name its format"),
        ("extra", 1, "does not hold"),
    ],
)
def test_damaged_descriptions_are_refused_by_name(
    tmp_path: Path, field: str, value: object, problem: str
) -> None:
    body = _metadata(tmp_path, EXPERTS_KEY)
    body[PREFIX]["parts"]["up_proj"][field] = value  # type: ignore[index]
    with pytest.raises(CheckpointError, match=f"{PREFIX}.*{problem}"):
        decode_experts(json.dumps(body), tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "change", ["bytes", "more bytes", "parts", "order", "matrix offset", "no object"]
)
def test_damaged_records_are_refused_by_name(tmp_path: Path, change: str) -> None:
    path = tmp_path / "model.safetensors"
    body = _metadata(tmp_path, EXPERTS_KEY)
    record: dict[str, dict[str, object]] = body[PREFIX]  # type: ignore[assignment]
    if change == "bytes":
        record["bytes"] = 4096  # type: ignore[assignment]
    elif change == "more bytes":  # than its matrices have and the padding to a page
        record["bytes"] += 4096  # type: ignore[assignment, operator]
    elif change == "parts":
        del record["parts"]
    elif change == "order":
        record["parts"] = dict(reversed(record["parts"].items()))
    elif change == "no object":
        body[PREFIX] = []
    else:
        matrices = _metadata(tmp_path, MATRICES_KEY)
        next(iter(matrices.values()))["offset"] = 64  # type: ignore[index]
        with pytest.raises(CheckpointError, match="does not begin with its tensor"):
            decode_matrices(json.dumps(matrices), path)
        return
    with pytest.raises(CheckpointError, match=PREFIX):
        decode_experts(json.dumps(body), path)
