"""Opening a model: the same weights whatever the container, or one line that says what is wrong."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import (
    CheckpointError,
    ColibriError,
    UnsupportedModel,
    UnsupportedQuantFormat,
)
from colibri_engine.loader.architectures import MODEL_TYPES
from colibri_engine.loader.base import Checkpoint, SpecialTokens
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.gguf import GgufFile
from colibri_engine.quant.base import FloatTensor, IntTensor
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import (
    CHAT_TEMPLATE,
    TinyCheckpoint,
    store_float,
    write_hf,
    write_json,
    write_safetensors,
)
from tests.fakes.tiny_gguf import write_gguf_model

FAMILIES = ("llama", "olmoe", "qwen3_moe", "glm4_moe")
WIDE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 2,
}


def assert_reads_as_written(tiny: TinyCheckpoint) -> None:
    checkpoint = open_checkpoint(tiny.path)
    assert set(checkpoint.names()) == set(tiny.weights)
    for name, values in tiny.weights.items():
        assert checkpoint.shape(name) == values.shape
        assert checkpoint.tensor(name).shape == values.shape
        found = checkpoint.array(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, values, err_msg=name)
    for key, value in tiny.config.items():
        if key not in ("eos_token_id", "quantization_config", "moe_intermediate_size"):
            assert checkpoint.config[key] == value, key
    assert checkpoint.special_tokens == SpecialTokens("<|im_start|>", "<|im_end|>", 1, (0, 2))
    assert checkpoint.chat_template == CHAT_TEMPLATE
    checkpoint.close()


def refusal(path: Path, kind: type[ColibriError] = CheckpointError) -> ColibriError:
    with pytest.raises(kind) as caught:
        open_checkpoint(path)
    assert str(caught.value).isprintable()
    assert caught.value.hint
    return caught.value


def change_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in config.items() if value != "absent"})


# ---- what is written is read --------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_directory_gives_its_weights(tmp_path: Path, family: str, dtype: str) -> None:
    tiny = write_hf(tmp_path, family, dtype=dtype)
    assert_reads_as_written(tiny)


@pytest.mark.parametrize("family", FAMILIES)
def test_shards_are_one_model(tmp_path: Path, family: str) -> None:
    assert_reads_as_written(write_hf(tmp_path, family, num_shards=3))
    (tmp_path / "model.safetensors.index.json").unlink()  # never needed
    open_checkpoint(tmp_path).close()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", [(128, 128), (24, 40), (1, 64), (64, 1)])
def test_fp8_blocks_give_the_exact_product(
    tmp_path: Path, family: str, block: tuple[int, int]
) -> None:
    tiny = write_hf(tmp_path, family, dtype="F8_E4M3", fp8_block=block)
    assert_reads_as_written(tiny)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "type_name",
    ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"],
)
def test_a_gguf_file_gives_its_weights(tmp_path: Path, family: str, type_name: str) -> None:
    assert_reads_as_written(write_gguf_model(tmp_path / "m.gguf", family, type_name=type_name))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("type_name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_a_gguf_file_of_superblocks_gives_its_weights(
    tmp_path: Path, family: str, type_name: str
) -> None:
    changes = {**WIDE, "num_attention_heads": 8, "head_dim": 32}
    tiny = write_gguf_model(tmp_path / "m.gguf", family, type_name=type_name, **changes)
    assert_reads_as_written(tiny)


def test_integer_tensors_come_as_codes_and_floats_as_floats(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf_model(tmp_path / "m.gguf", type_name="Q4_0").path)
    matrix = checkpoint.tensor("model.layers.0.mlp.down_proj.weight")
    assert isinstance(matrix, IntTensor)
    assert (matrix.bits, matrix.group, matrix.zero, matrix.mins) == (4, 32, 8, None)
    norm = checkpoint.tensor("model.norm.weight")
    assert isinstance(norm, FloatTensor)
    assert norm.array.dtype == np.float32
    checkpoint.close()
    checkpoint.close()
    half = open_checkpoint(write_hf(tmp_path / "hf", dtype="BF16").path)
    tensor = half.tensor("model.norm.weight")
    assert isinstance(tensor, FloatTensor)
    assert tensor.array.dtype == np.uint16
    half.close()


def test_a_directory_that_holds_one_gguf_file_stands_for_it(tmp_path: Path) -> None:
    tiny = write_gguf_model(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.path == tiny.path
    assert checkpoint.nbytes == tiny.path.stat().st_size
    checkpoint.close()


def test_sizes_of_a_directory_are_those_of_its_weight_files(tmp_path: Path) -> None:
    write_hf(tmp_path, num_shards=2)
    checkpoint = open_checkpoint(tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert checkpoint.nbytes == sum(sizes)
    checkpoint.close()


# ---- paths --------------------------------------------------------------------------------------


def test_a_missing_path_says_so(tmp_path: Path) -> None:
    assert "there is no model at" in str(refusal(tmp_path / "nothing"))


def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path} is empty"


def test_a_directory_without_config_says_so(tmp_path: Path) -> None:
    write_hf(tmp_path)
    (tmp_path / "config.json").unlink()
    assert "has no config.json" in str(refusal(tmp_path))


def test_a_directory_of_several_gguf_files_wants_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_gguf_model(tmp_path / name)
    assert "2 GGUF files: a.gguf, b.gguf" in str(refusal(tmp_path))


def test_a_file_that_is_neither_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"PK\x03\x04 something")
    assert "is not a GGUF file" in str(refusal(path))
    path.write_bytes(b"")
    assert "is empty" in str(refusal(path))


def test_a_single_safetensors_file_points_to_its_directory(tmp_path: Path) -> None:
    write_hf(tmp_path)
    error = refusal(tmp_path / "model.safetensors")
    assert str(tmp_path) in str(error.hint)


def test_what_is_neither_file_nor_directory_says_so(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "neither a file nor a directory" in str(refusal(pipe))


def test_a_directory_that_may_not_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, pattern: str) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(self))

    write_hf(tmp_path)
    monkeypatch.setattr(Path, "glob", refuse)
    assert str(refusal(tmp_path)) == f"cannot read {tmp_path}: Permission denied"


def test_a_directory_without_weights_says_so(tmp_path: Path) -> None:
    write_hf(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "no *.safetensors files" in str(refusal(tmp_path))


def test_a_directory_without_tokenizer_says_so(tmp_path: Path) -> None:
    write_hf(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in str(refusal(tmp_path))
    (tmp_path / "tokenizer.model").touch()
    assert "only tokenizer.model" in str(refusal(tmp_path))


@pytest.mark.parametrize("model_type", ["gpt2", "inkling2_loop", "x\ny"])
def test_another_architecture_is_refused_with_the_supported_ones(
    tmp_path: Path, model_type: str
) -> None:
    write_hf(tmp_path)
    change_config(tmp_path, model_type=model_type)
    error = refusal(tmp_path, UnsupportedModel)
    assert repr(model_type) in str(error)
    for name in MODEL_TYPES:
        assert name in str(error.hint)


@pytest.mark.parametrize("model_type", ["absent", 7, None])
def test_a_config_without_architecture_is_refused(tmp_path: Path, model_type: object) -> None:
    write_hf(tmp_path)
    change_config(tmp_path, model_type=model_type)
    assert "model_type" in str(refusal(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"a": NaN}'])
def test_a_damaged_config_is_refused(tmp_path: Path, content: str) -> None:
    write_hf(tmp_path)
    (tmp_path / "config.json").write_text(content)
    assert "config.json" in str(refusal(tmp_path))


# ---- incomplete downloads -----------------------------------------------------------------------


def test_a_cut_shard_is_named_with_both_sizes(tmp_path: Path) -> None:
    write_hf(tmp_path, num_shards=2)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1000])
    message = str(refusal(tmp_path))
    assert f"{shard} looks incomplete" in message
    assert f"expected at least {len(whole)} bytes, found {len(whole) - 1000}" in message


def test_an_empty_shard_is_named(tmp_path: Path) -> None:
    write_hf(tmp_path, num_shards=2)
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(b"")
    assert f"{shard} looks incomplete: expected at least 8 bytes, found 0" in str(refusal(tmp_path))


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard_is_named(tmp_path: Path, *, with_index: bool) -> None:
    write_hf(tmp_path, num_shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    if not with_index:
        (tmp_path / "model.safetensors.index.json").unlink()
    message = str(refusal(tmp_path))
    assert "model-00002-of-00003.safetensors is missing" in message
    assert "looks incomplete" in message


def test_a_shard_that_only_the_index_knows_is_named(tmp_path: Path) -> None:
    write_hf(tmp_path)
    homes = {"model.norm.weight": "other.safetensors"}
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": homes})
    assert "other.safetensors is missing" in str(refusal(tmp_path))


def test_an_index_that_disagrees_is_refused(tmp_path: Path) -> None:
    write_hf(tmp_path, num_shards=2)
    index = tmp_path / "model.safetensors.index.json"
    body = json.loads(index.read_text())
    body["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors"
    body["weight_map"]["model.embed_tokens.weight"] = "model-00002-of-00002.safetensors"
    write_json(index, body)
    assert "says that" in str(refusal(tmp_path))
    for bad in ("../x", "/etc/x", "a\\b", 7, None, "x\ny"):
        body["weight_map"] = {"model.norm.weight": bad}
        write_json(index, body)
        assert "does not name a file" in str(refusal(tmp_path))
    write_json(index, {"weight_map": []})
    assert "no weight_map" in str(refusal(tmp_path))


def test_a_tensor_in_two_files_is_refused_with_both_names(tmp_path: Path) -> None:
    tiny = write_hf(tmp_path)
    stored, _ = store_float(tiny.weights["model.norm.weight"], "F32")
    write_safetensors(tmp_path / "other.safetensors", {"model.norm.weight": stored})
    message = str(refusal(tmp_path))
    assert "stands in both model.safetensors and other.safetensors" in message


@pytest.mark.parametrize(
    "missing", ["model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"]
)
def test_missing_ends_look_like_an_incomplete_download(tmp_path: Path, missing: str) -> None:
    tiny = write_hf(tmp_path, "glm4_moe")
    stored = {name: store_float(values, "F32")[0] for name, values in tiny.weights.items()}
    del stored[missing]
    write_safetensors(tmp_path / "model.safetensors", stored)
    assert f"incomplete download: the tensor {missing} is missing" in str(refusal(tmp_path))


def a_directory_of_floats(directory: Path) -> Path:
    return write_hf(directory).path


def a_container(directory: Path) -> Path:
    return write_container(directory).path


def a_streamed_container(directory: Path) -> Path:
    return restream(write_container(directory / "pairs").path, directory / "stream")


@pytest.mark.parametrize("write", [a_directory_of_floats, a_container, a_streamed_container])
@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_another_number_of_tokens_than_embeddings_is_refused_with_both(
    tmp_path: Path, write: Callable[[Path], Path], change: int
) -> None:
    """When the files are opened: neither the tokenizer nor a weight has been read by then."""
    path = write(tmp_path)
    rows = json.loads((path / "config.json").read_bytes())["vocab_size"]
    change_config(path, vocab_size=rows + change)
    (path / "tokenizer.json").write_text("{")
    error = refusal(path)
    assert f"vocab_size = {rows + change} of {path} contradicts model.embed_tokens" in str(error)
    assert f"which has {rows} rows" in str(error)


@pytest.mark.parametrize("write", [a_directory_of_floats, a_container, a_streamed_container])
def test_a_layer_without_tensors_is_an_incomplete_download(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    """Before weights are read, or hours are spent on converting them."""
    path = write(tmp_path)
    layers = json.loads((path / "config.json").read_bytes())["num_hidden_layers"]
    change_config(path, num_hidden_layers=layers + 2)
    wanted = f"incomplete download: of its {layers + 2} layers layer {layers} has no tensor"
    assert wanted in str(refusal(path))


@pytest.mark.parametrize("change", [-1, 1])
def test_a_gguf_file_that_claims_another_number_of_tokens_is_refused(
    tmp_path: Path, change: int
) -> None:
    rows = write_gguf_model(tmp_path / "a.gguf").config["vocab_size"]
    path = write_gguf_model(tmp_path / "b.gguf", metadata={"llama.vocab_size": rows + change}).path
    wanted = f"llama.vocab_size is {rows + change}, but token_embd.weight has {rows} rows"
    assert wanted in str(refusal(path))


def test_a_gguf_file_without_its_norm_looks_incomplete(tmp_path: Path) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", leave_out=("output_norm.weight",)).path
    assert "incomplete download: output_norm.weight is missing" in str(refusal(path))


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    for tiny in (write_hf(tmp_path / "hf"), write_gguf_model(tmp_path / "m.gguf")):
        checkpoint = open_checkpoint(tiny.path)
        with pytest.raises(CheckpointError, match=r"has no tensor model\.layers\.9") as caught:
            checkpoint.tensor("model.layers.9.mlp.up_proj.weight")
        assert caught.value.tensor == "model.layers.9.mlp.up_proj.weight"
        checkpoint.close()


# ---- number formats -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", None, 3, ["fp8"]])
def test_another_quantisation_is_refused_by_name(tmp_path: Path, method: object) -> None:
    write_hf(tmp_path)
    change_config(tmp_path, quantization_config={"quant_method": method})
    assert repr(str(method)) in str(refusal(tmp_path, UnsupportedQuantFormat))


@pytest.mark.parametrize("block", [None, [128], [0, 128], [128, 128, 1], "128", [1.5, 2]])
def test_fp8_without_blocks_is_refused(tmp_path: Path, block: object) -> None:
    write_hf(tmp_path, dtype="F8_E4M3")
    settings = {"quant_method": "fp8", "weight_block_size": block}
    change_config(tmp_path, quantization_config=settings)
    assert "weight_block_size" in str(refusal(tmp_path, UnsupportedQuantFormat))


def fp8_error(checkpoint: Checkpoint, name: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.tensor(name)
    assert caught.value.tensor == name
    checkpoint.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("scales", "problem"),
    [
        (np.ones((1, 2), np.float32), "scales of shape"),
        (np.ones(1, np.float32), "scales of shape"),
        (np.full((1, 1), np.nan, np.float32), "not finite"),
        (np.full((1, 1), np.inf, np.float32), "not finite"),
        (np.full((1, 1), -1, np.float32), "negative"),
        (np.full((1, 1), 3e38, np.float32), "a value that is not finite"),
        (None, "has no model.layers.0.mlp.up_proj.weight_scale_inv"),
    ],
)
def test_fp8_scales_that_cannot_be_right_are_refused(
    tmp_path: Path, scales: np.ndarray[Any, Any] | None, problem: str
) -> None:
    tiny = write_hf(tmp_path, dtype="F8_E4M3")
    name = "model.layers.0.mlp.up_proj.weight"
    stored = {key: store_float(values, "F32")[0] for key, values in tiny.weights.items()}
    shape = tiny.weights[name].shape
    stored[name] = ("F8_E4M3", shape, bytes([0x7E]) * tiny.weights[name].size)
    if scales is not None:
        stored[f"{name}_scale_inv"] = ("F32", scales.shape, scales.tobytes())
    write_safetensors(tmp_path / "model.safetensors", stored)
    assert problem in fp8_error(open_checkpoint(tmp_path), name)


@pytest.mark.parametrize("dtype", ["F64", "I32", "I64", "U8", "F8_E5M2"])
def test_a_tensor_of_another_dtype_is_refused_when_it_is_read(tmp_path: Path, dtype: str) -> None:
    tiny = write_hf(tmp_path)
    stored = {key: store_float(values, "F32")[0] for key, values in tiny.weights.items()}
    size = {"F64": 8, "I64": 8, "I32": 4}.get(dtype, 1)
    stored["extra"] = (dtype, (3,), bytes(3 * size))
    write_safetensors(tmp_path / "model.safetensors", stored)
    checkpoint = open_checkpoint(tmp_path)  # position ids and the like do no harm
    with pytest.raises(UnsupportedQuantFormat, match=f"extra .* is stored as {dtype}"):
        checkpoint.tensor("extra")
    checkpoint.close()


def test_an_unsupported_gguf_type_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", type_name="F16").path
    content = path.read_bytes()
    place = content.index(b"blk.0.attn_output.weight") + len(b"blk.0.attn_output.weight") + 20
    assert content[place : place + 4] == b"\x01\0\0\0"
    path.write_bytes(content[:place] + b"\x19\0\0\0" + content[place + 4 :])  # I16, the same size
    error = refusal(path, UnsupportedQuantFormat)
    assert "blk.0.attn_output.weight" in str(error)
    assert "I16" in str(error)


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E01])
def test_a_scale_that_is_not_finite_is_refused_with_its_tensor(
    tmp_path: Path, type_name: str, bits: int
) -> None:
    changes = {**WIDE, "num_attention_heads": 8, "head_dim": 32}
    path = write_gguf_model(tmp_path / "m.gguf", type_name=type_name, **changes).path
    file = GgufFile(path)
    place = file.tensors["blk.0.ffn_down.weight"].offset
    file.close()
    content = bytearray(path.read_bytes())
    content[place : place + 2] = bits.to_bytes(2, "little")
    path.write_bytes(content)
    checkpoint = open_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_down\.weight .* not finite"):
        checkpoint.tensor("model.layers.0.mlp.down_proj.weight")
    checkpoint.close()


# ---- tokens, template, defaults -----------------------------------------------------------------


def test_end_tokens_are_the_union_of_all_sources(tmp_path: Path) -> None:
    write_hf(tmp_path)
    change_config(tmp_path, eos_token_id=[2, 4])
    write_json(tmp_path / "generation_config.json", {"eos_token_id": 3, "top_p": 0.9})
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "</think>"})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.special_tokens.eos_token_ids == (0, 2, 3, 4, 6)
    assert checkpoint.special_tokens.eos_token == "</think>"
    assert checkpoint.special_tokens.bos_token_id == 1  # from config.json
    assert checkpoint.special_tokens.bos_token == "<|im_start|>"
    assert checkpoint.generation_config["top_p"] == 0.9
    assert checkpoint.chat_template is None
    checkpoint.close()


@pytest.mark.parametrize("bad", [-1, "2", 1.5, [2, None], 1 << 40, True])
def test_end_tokens_that_are_no_ids_are_refused(tmp_path: Path, bad: object) -> None:
    write_hf(tmp_path)
    change_config(tmp_path, eos_token_id=bad)
    assert "token id" in str(refusal(tmp_path))


def test_gguf_end_tokens_and_sampling_defaults(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf_model(
        path,
        metadata={
            "tokenizer.ggml.eot_token_id": 4,
            "tokenizer.ggml.eom_token_id": 3,
            "tokenizer.chat_template": None,
            "general.sampling.temp": 0.7,
            "general.sampling.top_p": 0.95,
            "general.sampling.top_k": 20,
        },
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.special_tokens.eos_token_ids == (0, 2, 3, 4)
    assert checkpoint.chat_template is None
    assert checkpoint.generation_config == {"temperature": 0.7, "top_p": 0.95, "top_k": 20}
    checkpoint.close()


def test_a_directory_can_be_copied_away_while_open(tmp_path: Path) -> None:
    tiny = write_hf(tmp_path / "a")
    checkpoint = open_checkpoint(tiny.path)
    shutil.rmtree(tiny.path)
    np.testing.assert_array_equal(
        checkpoint.array("model.norm.weight"), tiny.weights["model.norm.weight"]
    )
    checkpoint.close()
