"""What a conversion writes: formats as planned, values as the formula says, files as expected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.conversion.convert import Conversion
from colibri_engine.conversion.options import Layout
from colibri_engine.conversion.plan_summary import summarize
from colibri_engine.errors import (
    BadChoice,
    CheckpointError,
    ColibriError,
    ConversionError,
    UnsupportedModel,
)
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.safetensors import SafetensorsFile
from tests.engine.conversion.rig import (
    Told,
    convert,
    formats,
    logits,
    options,
    rounded,
    values,
    weight_files,
    write_drafting,
    write_source,
    write_weights,
)
from tests.engine.loader.mutations import mutations
from tests.fakes.tiny_checkpoint import (
    tiny_config,
    tiny_weights,
    write_hf,
)
from tests.fakes.tiny_gguf import write_gguf_model

BOTH = [Layout.STREAM, Layout.PAIRS]
CONTAINER_SIZES: dict[str, Any] = {"hidden_size": 256, "moe_intermediate_size": 128}
EXPERT = "model.layers.1.mlp.experts.2.down_proj.weight"


@pytest.mark.parametrize("layout", BOTH)
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F8_E4M3"])
def test_every_tensor_comes_out_as_the_default_says(
    tmp_path: Path, layout: Layout, dtype: str
) -> None:
    source = write_source(tmp_path / "source", dtype)
    convert(source.path, tmp_path / "out", options(layout), verify=True)
    found = values(tmp_path / "out")
    assert found.keys() == source.weights.keys()
    for name, array in source.weights.items():
        if array.ndim == 1 or name.endswith("mlp.gate.weight"):
            wanted = array
        else:
            is_io = name in {"model.embed_tokens.weight", "lm_head.weight"}
            wanted = rounded(array, 8 if is_io else 4)
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


@pytest.mark.parametrize("layout", BOTH)
@pytest.mark.parametrize(
    ("bits", "group_size", "form"),
    [
        (8, None, "int8-row"), (5, None, "int8-row"), (4, None, "int4-grouped"),
        (4, 32, "int4-grouped"), (4, 0, "int4-row"), (3, None, "int3-g64"), (2, None, "int2-row"),
    ],
)  # fmt: skip
def test_experts_take_the_bits_they_are_given(
    tmp_path: Path, layout: Layout, bits: int, group_size: int | None, form: str
) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(layout, group_size=group_size, xbits=str(bits))
    convert(source.path, tmp_path / "out", chosen)
    assert formats(tmp_path / "out")[EXPERT] == form
    wanted = rounded(source.weights[EXPERT], bits, group_size)
    np.testing.assert_array_equal(values(tmp_path / "out")[EXPERT], wanted)


@pytest.mark.parametrize("layout", BOTH)
def test_every_class_has_an_option(tmp_path: Path, layout: Layout) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(
        layout, ebits="8", io_bits="4", gate_bits="2", up_bits="3", shared_bits="3", o_bits="2",
        attn_bits="16", dmlp_bits="4",
    )  # fmt: skip
    convert(source.path, tmp_path / "out", chosen)
    found = formats(tmp_path / "out")
    layer = "model.layers.1"
    assert found["lm_head.weight"] == "int4-grouped"
    assert found[f"{layer}.mlp.experts.0.gate_proj.weight"] == "int2-row"
    assert found[f"{layer}.mlp.experts.0.up_proj.weight"] == "int3-g64"
    assert found[f"{layer}.mlp.experts.0.down_proj.weight"] == "int8-row"
    assert found[f"{layer}.mlp.shared_experts.up_proj.weight"] == "int3-g64"
    assert found[f"{layer}.self_attn.o_proj.weight"] == "int2-row"
    assert found[f"{layer}.self_attn.k_proj.weight"] == "BF16"
    assert found["model.layers.0.mlp.down_proj.weight"] == "int4-grouped"


@pytest.mark.parametrize("layout", BOTH)
def test_both_layouts_give_the_same_logits_as_their_values(tmp_path: Path, layout: Layout) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out", options(layout))
    weights = values(tmp_path / "out")
    plain = write_weights(tmp_path / "plain", source.config, weights)
    ids = np.array([5, 9, 17, 4], np.int32)
    np.testing.assert_allclose(
        logits(tmp_path / "out", ids), logits(plain.path, ids), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("layout", BOTH)
def test_sizes_are_those_of_the_plan(tmp_path: Path, layout: Layout) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(layout, shard_bytes=40_000)
    checkpoint = open_checkpoint(source.path)
    conversion = Conversion(checkpoint, tmp_path / "out", chosen)
    summary = summarize(conversion.plan, chosen)
    conversion.run(Told())
    checkpoint.close()
    files = weight_files(tmp_path / "out")
    assert len(files) == summary["files"] > 2
    assert {f.name: f.nbytes for f in conversion.plan.files} == {
        name: len(data) for name, data in files.items()
    }
    assert summary["result_bytes"] == sum(len(data) for data in files.values())
    told = sum(row["bytes"] for row in summary["classes"])
    headers = sum(int.from_bytes(data[:8], "little") + 8 for data in files.values())
    padding = 4096 * 4  # experts, in the streaming layout
    assert told <= summary["result_bytes"] <= told + headers + padding
    planned = {row["format"] for row in summary["classes"]}
    assert planned == set(formats(tmp_path / "out").values()) == {"int8-row", "int4-grouped", "F32"}


@pytest.mark.parametrize("layout", BOTH)
def test_the_file_size_does_not_change_the_tensors(tmp_path: Path, layout: Layout) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "one", options(layout))
    told = convert(source.path, tmp_path / "many", options(layout, shard_bytes=20_000))
    assert len(told.files) == len(weight_files(tmp_path / "many")) > 5
    one, many = values(tmp_path / "one"), values(tmp_path / "many")
    for name, array in one.items():
        np.testing.assert_array_equal(many[name], array)


def test_progress_never_goes_back_and_ends_at_the_total(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    told = convert(source.path, tmp_path / "out", options(shard_bytes=40_000))
    done = [done for done, _ in told.done]
    assert done == sorted(done)
    assert told.done[0][0] == 0
    assert told.done[-1] == (told.done[0][1], told.done[0][1])


@pytest.mark.parametrize("path", [[Layout.PAIRS, Layout.STREAM, Layout.PAIRS], BOTH[::-1] + BOTH])
@pytest.mark.parametrize(
    "bits",
    [
        {}, {"ebits": "8"}, {"xbits": "3"}, {"xbits": "2", "io_bits": "2"},
        {"gate_bits": "8", "down_bits": "3", "o_bits": "16"},
    ],
    ids=str,
)  # fmt: skip
def test_the_way_over_the_other_layout_changes_no_byte(
    tmp_path: Path, path: list[Layout], bits: dict[str, Any]
) -> None:
    write_drafting(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "0", options(path[0], shard_bytes=50_000, **bits))
    for place, layout in enumerate(path[1:], 1):
        chosen = options(layout, shard_bytes=50_000)
        convert(tmp_path / f"{place - 1}", tmp_path / f"{place}", chosen)
    last = path.index(path[0], 1) if path[-1] is not path[0] else len(path) - 1
    first, again = weight_files(tmp_path / "0"), weight_files(tmp_path / f"{last}")
    assert len(first) > 3
    assert first == again


def test_old_names_tell_main_draft_and_stamps_tell_formats(tmp_path: Path) -> None:
    write_drafting(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "out", options(Layout.PAIRS))
    names = [*weight_files(tmp_path / "out")]
    assert names == ["out-00000.safetensors", "out-mtp-00000.safetensors"]
    file = SafetensorsFile(tmp_path / "out" / "out-00000.safetensors")
    file.close()
    stamps = json.loads(file.metadata["colibri.fmt"])
    assert stamps["model.layers.1.mlp.experts.*.up_proj.weight"] == "int4-grouped"
    assert stamps["lm_head.weight"] == "int8-row"
    groups = json.loads(file.metadata["colibri.group_size"])
    assert groups["model.layers.1.mlp.experts.*.up_proj.weight"] == 64
    entry = file.entries["model.layers.1.mlp.experts.0.up_proj.weight"]
    assert (entry.dtype, entry.shape) == ("U8", (80 * 64,))
    scales = file.entries["model.layers.1.mlp.experts.0.up_proj.weight.qs"]
    assert (scales.dtype, scales.shape) == ("F32", (80 * 2,))


@pytest.mark.parametrize("layout", BOTH)
def test_draft_layers_have_eight_bits_and_lose_their_copies(tmp_path: Path, layout: Layout) -> None:
    write_drafting(tmp_path / "source")
    told = convert(tmp_path / "source", tmp_path / "out", options(layout))
    found = {n: f for n, f in formats(tmp_path / "out").items() if n.startswith("model.layers.2.")}
    assert set(found.values()) == {"int8-row", "F32"}
    assert found["model.layers.2.eh_proj.weight"] == "int8-row"
    assert found["model.layers.2.mlp.experts.0.up_proj.weight"] == "int8-row"
    assert not [name for name in found if "embed_tokens" in name or "shared_head.head" in name]
    assert [note for note in told.notes if "eh_proj" in note and "embedding half" in note]


def test_draft_layers_can_be_left_out(tmp_path: Path) -> None:
    write_drafting(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "out", options(with_mtp=False))
    assert not [name for name in formats(tmp_path / "out") if name.startswith("model.layers.2.")]


def test_a_draft_projection_that_would_lose_a_half_is_refused(tmp_path: Path) -> None:
    write_drafting(tmp_path / "source", ratio=30)
    convert(tmp_path / "source", tmp_path / "eight")
    with pytest.raises(ConversionError, match=r"eh_proj.* to 4 bits loses .*embedding half"):
        convert(tmp_path / "source", tmp_path / "four", options(mtp_bits="4", group_size=0))


@pytest.mark.parametrize("layout", BOTH)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", [EXPERT, "model.norm.weight", "lm_head.weight"])
def test_a_value_that_is_no_number_is_refused_by_name(
    tmp_path: Path, layout: Layout, bad: float, name: str
) -> None:
    config = tiny_config("glm4_moe")
    weights = tiny_weights(config)
    weights[name].reshape(-1)[-1] = bad
    write_weights(tmp_path / "source", config, weights)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        convert(tmp_path / "source", tmp_path / "out", options(layout))
    assert not weight_files(tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    "name",
    ["model.layers.0.self_attn.gate_proj.weight", "model.layers.1.mlp.experts.w", "extra.weight"],
)
def test_an_unknown_tensor_stops_the_conversion_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    config = tiny_config("glm4_moe")
    weights = tiny_weights(config) | {name: np.zeros((4, 64), np.float32)}
    write_weights(tmp_path / "source", config, weights)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        convert(tmp_path / "source", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3"])
def test_damaged_sources_are_refused_by_name_or_converted(tmp_path: Path, dtype: str) -> None:
    sizes: dict[str, Any] = {"hidden_size": 64, "n_routed_experts": 2, "num_experts_per_tok": 1}
    write_hf(tmp_path / "source", "glm4_moe", dtype=dtype, **sizes)
    path = tmp_path / "source" / "model.safetensors"
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    converted = 0
    for number, changed in enumerate(mutations(content, 60, header=length)):
        path.write_bytes(changed)
        out = tmp_path / f"out-{number}"
        try:
            convert(tmp_path / "source", out)
            converted += 1
        except ColibriError:
            assert not (out / "config.json").exists()
    assert 0 < converted < 60


def test_an_expert_without_one_of_its_matrices_is_refused(tmp_path: Path) -> None:
    config = tiny_config("glm4_moe")
    weights = tiny_weights(config)
    del weights[EXPERT]
    write_weights(tmp_path / "source", config, weights)
    with pytest.raises(CheckpointError, match=r"experts\.2.* has no down_proj"):
        convert(tmp_path / "source", tmp_path / "out")


def test_a_result_larger_than_its_source_is_announced(tmp_path: Path) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", "llama", type_name="Q4_0")
    chosen = options(ebits="8", io_bits="8")
    checkpoint = open_checkpoint(source.path)
    summary = summarize(Conversion(checkpoint, tmp_path / "out", chosen).plan, chosen)
    checkpoint.close()
    (warning,) = summary["warnings"]
    assert re.fullmatch(
        r"the result is larger than the source: 0\.\d MB instead of 0\.\d MB", warning
    )


@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
@pytest.mark.parametrize("type_name", ["Q4_0", "Q8_0", "Q4_1"])
def test_integers_of_a_gguf_file_are_kept(tmp_path: Path, family: str, type_name: str) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", family, type_name=type_name)
    convert(source.path, tmp_path / "out")
    assert type_name in formats(tmp_path / "out").values()
    before, found = values(source.path), values(tmp_path / "out")
    assert found.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    again = open_checkpoint(tmp_path / "out")
    first = open_checkpoint(source.path)
    assert again.special_tokens == first.special_tokens
    assert again.chat_template == first.chat_template
    assert again.tokenizer.prefix_ids == first.tokenizer.prefix_ids
    text = "hello world 20 <|im_start|> ünï"
    ids = [source.build().encode(text).ids for source in (again.tokenizer, first.tokenizer)]
    assert ids[0] == ids[1]
    again.close()
    first.close()


def test_integers_of_a_gguf_file_can_be_rounded_anew(tmp_path: Path) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", "glm4_moe", type_name="Q8_0")
    convert(source.path, tmp_path / "out", options(xbits="4"))
    before, found = values(source.path), values(tmp_path / "out")
    np.testing.assert_array_equal(found[EXPERT], rounded(before[EXPERT], 4))
    convert(source.path, tmp_path / "pairs", options(Layout.PAIRS))
    assert formats(tmp_path / "pairs")[EXPERT] == "int4-row"


def test_fp8_bytes_can_be_kept_in_pairs(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "F8_E4M3", hidden_size=256)
    chosen = options(Layout.PAIRS, xbits="fp8", attn_bits="fp8")
    convert(source.path, tmp_path / "out", chosen)
    assert formats(tmp_path / "out")[EXPERT] == "fp8-e4m3-b128"
    np.testing.assert_array_equal(values(tmp_path / "out")[EXPERT], source.weights[EXPERT])


def test_fp8_where_blocks_are_as_many_as_rows_is_refused(tmp_path: Path) -> None:
    # 2 rows of one block high, 2 blocks wide: readers cannot tell it from int8 with row scales.
    source = write_source(tmp_path / "source", "F8_E4M3", hidden_size=256, moe_intermediate_size=2)
    with pytest.raises(BadChoice, match="as many fp8 blocks as rows"):
        convert(source.path, tmp_path / "out", options(Layout.PAIRS, gate_bits="fp8"))


@pytest.mark.parametrize(
    ("layout", "group_size", "bits", "problem"),
    [
        (Layout.STREAM, None, {"xbits": "fp8"}, "no fp8 bytes to keep"),
        (Layout.STREAM, None, {"xbits": "e8"}, "e8 cannot be combined with --layout stream"),
        (Layout.STREAM, None, {"ebits": "16"}, "routed experts are stored as integers or fp8"),
        (Layout.STREAM, None, {"xbits": "keep"}, "no integers to keep"),
        (Layout.PAIRS, None, {"xbits": "fp8"}, "no fp8 bytes to keep"),
        (Layout.PAIRS, 64, {"ebits": "8"}, "--group-size 64 has no effect"),
        (Layout.PAIRS, 64, {"ebits": "2"}, "--group-size 64 has no effect"),
        (Layout.PAIRS, 40, {}, "--group-size 40 is not possible"),
    ],
)
def test_choices_that_cannot_be_are_refused(
    tmp_path: Path, layout: Layout, group_size: int | None, bits: dict[str, Any], problem: str
) -> None:
    source = write_source(tmp_path / "source")
    with pytest.raises(BadChoice, match=problem):
        convert(source.path, tmp_path / "out", options(layout, group_size=group_size, **bits))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["1", "9", "4.0", "-4", "", "int4", "٤"])
def test_bits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadChoice, match="no number of bits"):
        options(xbits=text)


def test_configuration_and_tokenizer_come_along(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "F8_E4M3")
    told = convert(source.path, tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (source.path / name).read_bytes()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "quantization_config" not in config
    assert config == {k: v for k, v in source.config.items() if k != "quantization_config"}
    assert told.notes == []
    (source.path / "generation_config.json").unlink()
    again = convert(source.path, tmp_path / "again")
    assert again.notes == ["the source has no generation_config.json"]


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    source = write_hf(tmp_path / "source", "llama", dtype="BF16")
    convert(source.path, tmp_path / "out")
    assert "lm_head.weight" not in formats(tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"scoring_func": "softmax"}, "scoring_func"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "longrope"),
    ],
)
def test_a_model_that_could_not_run_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    source = write_source(tmp_path / "source").path
    config = json.loads((source / "config.json").read_bytes())
    (source / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(UnsupportedModel, match=word):
        convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_source_itself_is_no_destination(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    with pytest.raises(ConversionError, match="is the source itself"):
        convert(source.path, source.path)
