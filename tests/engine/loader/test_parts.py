"""Stacks of experts, interleaved rows and other spellings are shown matrix by matrix."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.weight_file import WeightFile
from colibri_engine.quant.base import IntTensor
from tests.fakes.tiny_checkpoint import (
    StoredArray,
    store_float,
    store_mxfp4,
    tokenizer_json,
    write_json,
    write_safetensors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from colibri_engine.loader.base import Checkpoint

    Floats = npt.NDArray[np.float32]

E, C, F = 3, 64, 32
EXPERTS = "model.layers.0.mlp.experts"
CORE = {
    "model.embed_tokens.weight": (300, C),
    "model.norm.weight": (C,),
    "lm_head.weight": (300, C),
}


def random(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


class Write(Protocol):
    """Writes a directory with these tensors and opens it until the test ends."""

    def __call__(
        self, model_type: str, tensors: dict[str, StoredArray], **config: object
    ) -> Checkpoint: ...


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    with ExitStack() as opened:

        def write(model_type: str, tensors: dict[str, StoredArray], **config: object) -> Checkpoint:
            keys = {"model_type": model_type, "vocab_size": 300, **config}
            write_json(tmp_path / "config.json", keys)
            write_json(tmp_path / "tokenizer.json", tokenizer_json())
            write_safetensors(tmp_path / "model.safetensors", tensors)
            return opened.enter_context(closing(open_checkpoint(tmp_path)))

        yield write


def floats(values: dict[str, Floats], dtype: str = "F32") -> dict[str, StoredArray]:
    return {name: store_float(array, dtype)[0] for name, array in values.items()}


def core(rng: np.random.Generator) -> dict[str, StoredArray]:
    return floats({name: random(rng, *shape) for name, shape in CORE.items()})


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


# ---- gpt_oss ------------------------------------------------------------------------------------


def check_experts(checkpoint: Checkpoint, gate_up: Floats, down: Floats) -> None:
    """Compare with gate_up (E, 2F, C), interleaved, and down (E, C, F)."""
    for expert in range(E):
        prefix = f"{EXPERTS}.{expert}"
        for name, want in {
            "gate_proj": gate_up[expert, 0::2],
            "up_proj": gate_up[expert, 1::2],
            "down_proj": down[expert],
        }.items():
            assert checkpoint.shape(f"{prefix}.{name}.weight") == want.shape
            got = checkpoint.array(f"{prefix}.{name}.weight")
            np.testing.assert_array_equal(got, want)
            rows = checkpoint.rows(f"{prefix}.{name}.weight", 0, 5)
            np.testing.assert_array_equal(rows.unpack(), want[:5])


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_transposed_stacks_of_floats(write: Write, rng: np.random.Generator, dtype: str) -> None:
    stored, exact = store_float(random(rng, E, C, 2 * F), dtype)
    down, exact_down = store_float(random(rng, E, F, C), dtype)
    tensors = core(rng) | {
        f"{EXPERTS}.gate_up_proj": stored,
        f"{EXPERTS}.down_proj": down,
        **floats(
            {
                f"{EXPERTS}.gate_up_proj_bias": np.arange(E * 2 * F, dtype=np.float32).reshape(
                    E, 2 * F
                )
            }
        ),
    }
    checkpoint = write("gpt_oss", tensors)
    check_experts(checkpoint, exact.swapaxes(1, 2), exact_down.swapaxes(1, 2))
    bias = checkpoint.array(f"{EXPERTS}.1.up_proj.bias")
    np.testing.assert_array_equal(bias, 2 * F + 1 + 2 * np.arange(F))
    assert not [name for name in checkpoint.names() if "gate_up" in name]


def blocks_of(values: Floats, name: str) -> tuple[dict[str, StoredArray], Floats]:
    blocks, scales, exact = store_mxfp4(values)
    return {
        f"{name}_blocks": ("U8", blocks.shape, blocks.tobytes()),
        f"{name}_scales": ("U8", scales.shape, scales.tobytes()),
    }, exact


def test_mxfp4_blocks(write: Write, rng: np.random.Generator) -> None:
    gate_up, exact = blocks_of(random(rng, E, 2 * F, C), f"{EXPERTS}.gate_up_proj")
    down, exact_down = blocks_of(random(rng, E, C, F), f"{EXPERTS}.down_proj")
    config = {"quantization_config": {"quant_method": "mxfp4"}}
    checkpoint = write("gpt_oss", core(rng) | gate_up | down, **config)
    check_experts(checkpoint, exact, exact_down)
    assert isinstance(checkpoint.tensor(f"{EXPERTS}.0.up_proj.weight"), IntTensor)


def test_one_expert_is_read_without_the_others(
    write: Write, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = core(rng) | floats({f"{EXPERTS}.gate_up_proj": random(rng, E, C, 2 * F)})
    checkpoint = write("gpt_oss", tensors)
    counts: list[int] = []
    read = WeightFile.read

    def counted(file: WeightFile, offset: int, count: int) -> npt.NDArray[np.uint8]:
        counts.append(count)
        return read(file, offset, count)

    monkeypatch.setattr(WeightFile, "read", counted)
    for expert in (2, 0):
        checkpoint.tensor(f"{EXPERTS}.{expert}.gate_proj.weight")
        checkpoint.tensor(f"{EXPERTS}.{expert}.up_proj.weight")  # lies in what was read
    assert counts == [2 * F * C * 4] * 2


def damaged(rng: np.random.Generator, how: str) -> dict[str, StoredArray]:
    name = f"{EXPERTS}.down_proj"
    tensors, _ = blocks_of(random(rng, E, C, F), name)
    dtype, shape, data = tensors[f"{name}_blocks"]
    if how == "scales missing":
        del tensors[f"{name}_scales"]
    elif how == "scales too few":
        tensors[f"{name}_scales"] = ("U8", (E, C - 1, 1), bytes(E * (C - 1)))
    elif how == "blocks of floats":
        tensors[f"{name}_blocks"] = ("F16", (E, C, 1, 8), data)
    else:
        tensors[f"{name}_blocks"] = (dtype, (E, C, 2, 8), data)
    del shape
    return tensors


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("scales missing", "has no .*_scales"),
        ("scales too few", r"scales of shape \[3, 63, 1\], not \[3, 64, 1\]"),
        ("blocks of floats", "stored as F16 and U8"),
        ("blocks of eight", r"blocks of shape \[3, 64, 2, 8\], not \[E, R, G, 16\]"),
    ],
)
def test_blocks_and_scales_that_do_not_fit_are_refused(
    write: Write, rng: np.random.Generator, how: str, text: str
) -> None:
    with pytest.raises(CheckpointError, match=text):
        write("gpt_oss", core(rng) | damaged(rng, how))


def test_an_empty_stack_of_many_experts_is_none(write: Write, rng: np.random.Generator) -> None:
    empty: StoredArray = ("F32", (1 << 60, 0, 4), b"")
    name = f"{EXPERTS}.down_proj"
    assert set(write("gpt_oss", core(rng) | {name: empty}).names()) == {*CORE, name}


# ---- inkling ------------------------------------------------------------------------------------


def test_published_names_of_inkling(write: Write, rng: np.random.Generator) -> None:
    layer = "model.llm.layers.3"
    values = {
        "model.llm.embed.weight": random(rng, 300, C),
        "model.llm.embed_norm.weight": random(rng, C),
        "model.llm.norm.weight": random(rng, C),
        "model.llm.unembed.weight": random(rng, 300, C),
        f"{layer}.attn.wq_du.weight": random(rng, C, C),
        f"{layer}.attn.k_sconv.weight": random(rng, C, 1, 4),
        f"{layer}.mlp_sconv.weight": random(rng, C, 1, 4),
        f"{layer}.mlp.w13_dn.weight": random(rng, 2 * F, C),
        f"{layer}.mlp.w2_md.weight": random(rng, C, F),
        f"{layer}.mlp.gate.bias": random(rng, E),
        f"{layer}.mlp.experts.w13_weight": random(rng, E, 2 * F, C),
        f"{layer}.mlp.experts.w2_weight": random(rng, E, C, F),
        f"{layer}.mlp.shared_experts.shared_w13_weight": random(rng, 2, 2 * F, C),
        "model.visual.layers.norm_0.weight": random(rng, 4),
    }
    checkpoint = write("inkling_mm_model", floats(values))
    shown = "model.layers.3"
    expected = {
        "model.embed_tokens.weight": values["model.llm.embed.weight"],
        "model.embed_tokens.embed_norm.weight": values["model.llm.embed_norm.weight"],
        "lm_head.weight": values["model.llm.unembed.weight"],
        f"{shown}.self_attn.q_proj.weight": values[f"{layer}.attn.wq_du.weight"],
        f"{shown}.self_attn.k_sconv.conv1d.weight": values[f"{layer}.attn.k_sconv.weight"],
        f"{shown}.mlp_sconv.conv1d.weight": values[f"{layer}.mlp_sconv.weight"],
        f"{shown}.mlp.gate_proj.weight": values[f"{layer}.mlp.w13_dn.weight"][0::2],
        f"{shown}.mlp.up_proj.weight": values[f"{layer}.mlp.w13_dn.weight"][1::2],
        f"{shown}.mlp.down_proj.weight": values[f"{layer}.mlp.w2_md.weight"],
        f"{shown}.mlp.gate.e_score_correction_bias": values[f"{layer}.mlp.gate.bias"],
        f"{shown}.mlp.experts.2.up_proj.weight": values[f"{layer}.mlp.experts.w13_weight"][2, 1::2],
        f"{shown}.mlp.experts.1.down_proj.weight": values[f"{layer}.mlp.experts.w2_weight"][1],
        f"{shown}.mlp.shared_experts.1.gate_proj.weight": values[
            f"{layer}.mlp.shared_experts.shared_w13_weight"
        ][1, 0::2],
        "model.visual.layers.norm_0.weight": values["model.visual.layers.norm_0.weight"],
    }
    for name, want in expected.items():
        assert checkpoint.shape(name) == want.shape
        np.testing.assert_array_equal(checkpoint.array(name), want, err_msg=name)
    rows = checkpoint.rows("lm_head.weight", 128, 7)
    np.testing.assert_array_equal(rows.unpack(), values["model.llm.unembed.weight"][128:135])


def test_inkling_as_transformers_saves_it_has_gate_before_up(
    write: Write, rng: np.random.Generator
) -> None:
    gate_up, shared = random(rng, E, 2 * F, C), random(rng, 2, F, C)
    values = {
        f"{EXPERTS}.gate_up_proj": gate_up,
        "model.layers.0.mlp.shared_experts.up_proj": shared,
    }
    checkpoint = write("inkling_text", core(rng) | floats(values))
    np.testing.assert_array_equal(checkpoint.array(f"{EXPERTS}.2.gate_proj.weight"), gate_up[2, :F])
    np.testing.assert_array_equal(checkpoint.array(f"{EXPERTS}.0.up_proj.weight"), gate_up[0, F:])
    name = "model.layers.0.mlp.shared_experts.1.up_proj.weight"
    np.testing.assert_array_equal(checkpoint.array(name), shared[1])


@pytest.mark.parametrize(
    ("model_type", "config", "ends"),
    [
        ("inkling_text", {"eos_token_id": 2, "bos_token_id": 1}, (0,)),
        ("inkling_text", {"eos_token_id": 6}, (0, 6)),
        ("inkling_mm_model", {"eos_token_id": 2, "text_config": {"eos_token_id": 5}}, (0, 2)),
    ],
)
def test_end_tokens_of_inkling(
    write: Write,
    rng: np.random.Generator,
    model_type: str,
    config: dict[str, Any],
    ends: tuple[int, ...],
) -> None:
    checkpoint = write(model_type, core(rng), **config)
    assert checkpoint.special_tokens.eos_token_ids == ends


@pytest.mark.parametrize("model_type", ["inkling2", "inkling2_text", "inkling2_loop"])
def test_the_second_inkling_is_refused_by_name(
    write: Write, rng: np.random.Generator, model_type: str
) -> None:
    with pytest.raises(UnsupportedModel, match=model_type):
        write(model_type, core(rng))
