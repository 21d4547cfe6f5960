"""Container directories: pairs of tensors, stamps, and everything that cannot be right."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.base import IntTensor
from tests.fakes.container_models import CONTAINER_FORMATS, rewrite, write_container

GATE = "model.layers.1.mlp.experts.3.gate_proj.weight"
PREFIX = "model.layers.1.mlp.experts."


def read(path: Path, name: str) -> Any:  # noqa: ANN401
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        return checkpoint.tensor(name)


def restamp(path: Path, stamps: object, key: str = "colibri.fmt") -> None:
    def change(_: object, metadata: dict[str, str]) -> None:
        metadata[key] = stamps if isinstance(stamps, str) else json.dumps(stamps)

    rewrite(path, change)


@pytest.mark.parametrize("family", ["glm4_moe", "llama"])
@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_every_matrix_is_read_as_it_was_written(
    tmp_path: Path, format_name: str, family: str
) -> None:
    model = write_container(tmp_path, family, format_name=format_name)
    with contextlib.closing(open_checkpoint(tmp_path)) as checkpoint:
        assert set(checkpoint.names()) == set(model.weights)
        for name, wanted in model.weights.items():
            assert checkpoint.shape(name) == wanted.shape, name
            np.testing.assert_array_equal(checkpoint.array(name), wanted, err_msg=name)


def test_plain_floats_may_stand_beside_packed_matrices(tmp_path: Path) -> None:
    model = write_container(tmp_path, io_format=None)
    with contextlib.closing(open_checkpoint(tmp_path)) as checkpoint:
        found = checkpoint.array("model.embed_tokens.weight")
    np.testing.assert_array_equal(found, model.weights["model.embed_tokens.weight"])


def test_a_container_may_keep_the_quantization_of_its_source(tmp_path: Path) -> None:
    write_container(tmp_path, quantization_config={"quant_method": "of the source"})
    assert read(tmp_path, GATE).bits == 4


def test_matrices_may_be_spread_over_files_of_any_name(tmp_path: Path) -> None:
    model = write_container(tmp_path, stamped=False)
    other = tmp_path / "out-mtp-00000.safetensors"

    def move(tensors: dict[str, Any], _: object) -> None:
        from tests.fakes.tiny_checkpoint import write_safetensors

        names = [name for name in tensors if ".experts." in name and name.endswith(".qs")]
        write_safetensors(other, {name: tensors.pop(name) for name in names})

    rewrite(tmp_path, move)
    found = read(tmp_path, GATE)
    np.testing.assert_array_equal(found.unpack(), model.weights[GATE])


# ---- stamps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stamps",
    [
        {GATE: "int4-grouped"},
        {PREFIX + "*": "int4-grouped"},
        {"*.experts.*": "int4-grouped", GATE: "int4-grouped"},
        {"*": "int4-grouped", "lm_head.weight": "int4-grouped"},
        {},
        {"model.layers.9.no_such.weight": "int8-row"},
    ],
)
def test_claims_that_agree_change_nothing(tmp_path: Path, stamps: dict[str, str]) -> None:
    model = write_container(tmp_path)
    restamp(tmp_path, stamps)
    np.testing.assert_array_equal(read(tmp_path, GATE).unpack(), model.weights[GATE])


@pytest.mark.parametrize(
    "stamps",
    [{GATE: "int3-g64"}, {PREFIX + "*": "int3-g64"}, {"*_proj.weight": "int3-g64"}],
)
def test_experts_are_checked_against_their_stamp_too(
    tmp_path: Path, stamps: dict[str, str]
) -> None:
    write_container(tmp_path)
    restamp(tmp_path, stamps)
    with pytest.raises(CheckpointError, match=f"{GATE} .*stamped 'int3-g64'.*fit int4-"):
        read(tmp_path, GATE)


def test_two_claims_that_differ_are_refused(tmp_path: Path) -> None:
    write_container(tmp_path)
    restamp(tmp_path, {GATE: "int4-grouped", PREFIX + "*": "int4-row"})
    with pytest.raises(CheckpointError, match=r"'int4-row'.* and 'int4-grouped'"):
        read(tmp_path, GATE)


def test_two_files_may_repeat_a_claim_but_not_contradict_it(tmp_path: Path) -> None:
    from tests.fakes.tiny_checkpoint import write_safetensors

    write_container(tmp_path)
    other = tmp_path / "out-idx-00000.safetensors"
    write_safetensors(other, {}, {"colibri.fmt": json.dumps({GATE: "int4-grouped"})})
    assert read(tmp_path, GATE).bits == 4
    write_safetensors(other, {}, {"colibri.fmt": json.dumps({GATE: "int8-row"})})
    with pytest.raises(CheckpointError, match="out-00000") as caught:
        read(tmp_path, GATE)
    assert "int8-row" in str(caught.value)


def test_a_group_size_in_the_metadata_decides(tmp_path: Path) -> None:
    model = write_container(tmp_path, hidden_size=96, group=64, stamped=False)
    found = read(tmp_path, GATE)
    assert isinstance(found, IntTensor)
    assert found.group == 48  # both make two groups of 96 inputs
    restamp(tmp_path, {"*.experts.*": 64}, "colibri.group_size")
    found = read(tmp_path, GATE)
    assert found.group == 64
    np.testing.assert_array_equal(found.unpack(), model.weights[GATE])


@pytest.mark.parametrize(
    ("key", "claims"),
    [
        ("colibri.fmt", "not json"),
        ("colibri.fmt", "[1]"),
        ("colibri.fmt", {GATE: 4}),
        ("colibri.fmt", {GATE: ""}),
        ("colibri.fmt", {GATE: "x" * 65}),
        ("colibri.fmt", f'{{"{GATE}": "int8-row", "{GATE}": "int4-row"}}'),
        ("colibri.group_size", {GATE: "64"}),
        ("colibri.group_size", {GATE: 0}),
        ("colibri.group_size", {GATE: True}),
        ("colibri.group_size", {GATE: 1 << 40}),
        ("colibri.fmt", {f"{number}*": "int8-row" for number in range(1025)}),
    ],
)
def test_malformed_claims_are_refused_naming_file_and_key(
    tmp_path: Path, key: str, claims: object
) -> None:
    write_container(tmp_path)
    restamp(tmp_path, claims, key)
    with pytest.raises(CheckpointError, match=r"out-00000\.safetensors") as caught:
        open_checkpoint(tmp_path)
    assert key in str(caught.value)


def test_the_entropy_coded_form_is_refused_when_opened(tmp_path: Path) -> None:
    write_container(tmp_path)
    restamp(tmp_path, "AAAA", "colibri.int4-rans256-g0.table")
    with pytest.raises(UnsupportedQuantFormat, match="int4-rans256-g0"):
        open_checkpoint(tmp_path)


# ---- damage -------------------------------------------------------------------------------------


def damaged(path: Path, name: str, offset: int, data: bytes) -> None:
    def change(tensors: dict[str, Any], _: object) -> None:
        dtype, shape, old = tensors[name]
        tensors[name] = (dtype, shape, old[:offset] + data + old[offset + len(data) :])

    rewrite(path, change)


@pytest.mark.parametrize("format_name", ["int8-row", "int4-grouped", "int3-g64", "fp8-e4m3-b128"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, -1e-20])
def test_scales_that_cannot_be_are_refused(tmp_path: Path, format_name: str, value: float) -> None:
    write_container(tmp_path, format_name=format_name)
    damaged(tmp_path, GATE + ".qs", 0, np.float32(value).tobytes())
    with pytest.raises(CheckpointError, match=f"{GATE} .*(negative|not finite)"):
        read(tmp_path, GATE)


@pytest.mark.parametrize("bits", [0x7C00, 0x7E00, 0xBC00])
def test_block_scales_of_the_lattice_are_checked(tmp_path: Path, bits: int) -> None:
    write_container(tmp_path, format_name="e8-iq3-lattice")
    damaged(tmp_path, GATE, 96, bits.to_bytes(2, "little"))
    with pytest.raises(CheckpointError, match=f"{GATE} .*(negative|not finite)"):
        read(tmp_path, GATE)


def test_the_mark_of_the_lattice_is_checked(tmp_path: Path) -> None:
    write_container(tmp_path, format_name="e8-iq3-lattice")
    damaged(tmp_path, GATE + ".qs", 0, np.float32(5).tobytes())
    with pytest.raises(CheckpointError, match=f"{GATE}.qs other than 6.0"):
        read(tmp_path, GATE)


def test_a_scale_byte_that_is_no_number_is_refused(tmp_path: Path) -> None:
    write_container(tmp_path, format_name="mxfp4")
    damaged(tmp_path, GATE + ".qs", 3, b"\xff")
    with pytest.raises(CheckpointError, match=f"{GATE} .*not finite"):
        read(tmp_path, GATE)


@pytest.mark.parametrize("part", ["", ".qs"])
def test_bytes_that_do_not_fit_the_architecture_are_refused(tmp_path: Path, part: str) -> None:
    write_container(tmp_path)

    def cut(tensors: dict[str, Any], _: object) -> None:
        dtype, (size,), data = tensors[GATE + part]
        width = 4 if dtype == "F32" else 1
        tensors[GATE + part] = (dtype, (size - 1,), data[:-width])

    rewrite(tmp_path, cut)
    with pytest.raises(CheckpointError, match=f"{GATE} .*32, 64.*bytes of weights"):
        read(tmp_path, GATE)


def test_shapes_come_from_the_configuration(tmp_path: Path) -> None:
    write_container(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["moe_intermediate_size"] = 48
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"{GATE} .*48, 64"):
        read(tmp_path, GATE)


@pytest.mark.parametrize("value", [None, 0, -1, True, "64", 1 << 25, 1.5])
def test_sizes_in_the_configuration_are_checked(tmp_path: Path, value: object) -> None:
    write_container(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["moe_intermediate_size"] = value
    if value is None:
        config["intermediate_size"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="moe_intermediate_size"):
        read(tmp_path, GATE)


def test_a_packed_tensor_of_unknown_name_is_refused(tmp_path: Path) -> None:
    write_container(tmp_path)

    def rename(tensors: dict[str, Any], _: object) -> None:
        for part in ("", ".qs"):
            tensors["model.layers.0.mystery.weight" + part] = tensors.pop(GATE + part)

    rewrite(tmp_path, rename)
    with pytest.raises(CheckpointError, match=r"mystery.*does not tell its shape"):
        read(tmp_path, "model.layers.0.mystery.weight")


def test_scales_without_weights_are_an_incomplete_container(tmp_path: Path) -> None:
    write_container(tmp_path)
    rewrite(tmp_path, lambda tensors, _: tensors.pop(GATE))
    with pytest.raises(CheckpointError, match=rf"{GATE}\.qs but not .*incomplete"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["model.norm.weight", "lm_head.weight"])
def test_a_missing_end_is_an_incomplete_download(tmp_path: Path, name: str) -> None:
    write_container(tmp_path)

    def remove(tensors: dict[str, Any], _: object) -> None:
        for part in ("", ".qs"):
            tensors.pop(name + part, None)

    rewrite(tmp_path, remove)
    with pytest.raises(CheckpointError, match=f"incomplete download.*{name}"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(("part", "dtype"), [("", "F32"), ("", "I32"), (".qs", "F16")])
def test_pairs_of_the_wrong_type_are_refused(tmp_path: Path, part: str, dtype: str) -> None:
    write_container(tmp_path)

    def change(tensors: dict[str, Any], _: object) -> None:
        _, _, data = tensors[GATE + part]
        width = 2 if dtype == "F16" else 4
        tensors[GATE + part] = (dtype, (len(data) // width,), data)

    rewrite(tmp_path, change)
    with pytest.raises(CheckpointError, match=f"{GATE} .*stored as {dtype}"):
        open_checkpoint(tmp_path)
