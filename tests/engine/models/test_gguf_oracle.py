"""Files written with the `gguf` package give the logits of the reference on the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")
pytest.importorskip("gguf", reason="gguf is not installed; run: make test")

from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes import oracle_gguf
from tests.fakes.oracle_models import CONFIGS, build_only, logits_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

pytestmark = pytest.mark.oracle

MAX_LOGIT_DIFFERENCE = 1e-4
NUM_IDS = 40

# Not here: the llama3 rule, which files hold as a tensor of factors (tests of the configuration
# cover it), dense layers of Qwen3 mixtures, for which the format has no names, latent attention
# that rotates by halves, which files cannot say, a second name of DeepSeek-V3, and Inkling.
NOT_IN_GGUF = {
    "llama-scaled-rope",
    "qwen3_moe-dense-layers",
    "deepseek_v3-half-rope",
    "kimi_k2",
}
IN_GGUF = sorted(name for name in CONFIGS if name not in NOT_IN_GGUF and "inkling" not in name)
# Files do not say where gpt_oss clamps.
CHANGES = {name: {"swiglu_limit": 7.0} for name in IN_GGUF if name.startswith("gpt_oss")}
TYPES = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
]  # fmt: skip
# Blocks of 256 want matrices that are whole blocks wide.
WIDE: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 256}


@pytest.fixture(scope="module")
def ids() -> npt.NDArray[np.int32]:
    return np.random.default_rng(5).integers(0, 256, NUM_IDS).astype(np.int32)


def difference(path: Path, directory: Path, ids: npt.NDArray[np.int32]) -> float:
    """Return the largest difference of any logit between a file and a reference checkpoint."""
    found = forward_in_chunks(load(path, "float"), ids, 7)
    return float(np.abs(found - logits_of(directory, ids)).max())


@pytest.mark.parametrize("name", IN_GGUF)
def test_an_architecture_equals_the_reference(
    tmp_path: Path, name: str, ids: npt.NDArray[np.int32]
) -> None:
    build_only(name, tmp_path, **CHANGES.get(name, {}))
    encoded = list(oracle_gguf.encode(oracle_gguf.pieces_of(tmp_path), lambda _: "F32"))
    path = tmp_path / "model.gguf"
    oracle_gguf.write(path, tmp_path, encoded)
    assert difference(path, tmp_path, ids) <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("type_name", TYPES)
def test_a_number_format_equals_the_reference_on_its_values(
    tmp_path: Path, type_name: str, ids: npt.NDArray[np.int32]
) -> None:
    build_only("llama-biases", tmp_path, **WIDE, head_dim=64)
    encoded = list(oracle_gguf.encode(oracle_gguf.pieces_of(tmp_path), lambda _: type_name))
    assert {tensor.kind.name for tensor in encoded} == {"F32", type_name}
    oracle_gguf.restore(tmp_path, encoded)
    path = tmp_path / "model.gguf"
    oracle_gguf.write(path, tmp_path, encoded)
    assert difference(path, tmp_path, ids) <= MAX_LOGIT_DIFFERENCE


def test_gpt_oss_with_experts_in_mxfp4_equals_the_reference(
    tmp_path: Path, ids: npt.NDArray[np.int32]
) -> None:
    build_only("gpt_oss", tmp_path, **CHANGES["gpt_oss"])
    encoded = list(
        oracle_gguf.encode(
            oracle_gguf.pieces_of(tmp_path),
            lambda piece: "MXFP4" if "_exps." in piece.name else "BF16",
        )
    )
    oracle_gguf.restore(tmp_path, encoded)
    path = tmp_path / "model.gguf"
    oracle_gguf.write(path, tmp_path, encoded)
    assert difference(path, tmp_path, ids) <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("name", ["deepseek_v3-wide-latents", "glm_moe_dsa-wide-latents"])
@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_1", "F16"])
@pytest.mark.parametrize("joined", [False, True], ids=["halves", "joined"])
def test_latent_projections_in_a_format_equal_the_reference_on_its_values(
    tmp_path: Path, name: str, type_name: str, joined: bool, ids: npt.NDArray[np.int32]
) -> None:
    build_only(name, tmp_path, qk_nope_head_dim=32)  # a whole block
    encoded = list(
        oracle_gguf.encode(
            oracle_gguf.pieces_of(tmp_path, joined=joined),
            lambda piece: type_name if "_b." in piece.name else "F32",
        )
    )
    assert {tensor.kind.name for tensor in encoded} == {type_name, "F32"}
    oracle_gguf.restore(tmp_path, encoded)
    path = tmp_path / "model.gguf"
    oracle_gguf.write(path, tmp_path, encoded)
    assert difference(path, tmp_path, ids) <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("name", ["qwen3_moe", "glm4_moe"])
def test_mixed_formats_equal_the_reference_on_their_values(
    tmp_path: Path, name: str, ids: npt.NDArray[np.int32]
) -> None:
    kinds = {"attn_v": "Q6_K", "ffn_down_exps": "Q5_K", "ffn_gate_exps": "Q2_K", "output": "Q8_0"}
    build_only(name, tmp_path, **WIDE, head_dim=64, moe_intermediate_size=256)
    pieces = oracle_gguf.pieces_of(tmp_path)
    encoded = list(
        oracle_gguf.encode(pieces, lambda piece: kinds.get(piece.name.split(".")[-2], "Q4_K"))
    )
    assert {*kinds.values(), "Q4_K", "F32"} == {tensor.kind.name for tensor in encoded}
    oracle_gguf.restore(tmp_path, encoded)
    path = tmp_path / "model.gguf"
    oracle_gguf.write(path, tmp_path, encoded)
    assert difference(path, tmp_path, ids) <= MAX_LOGIT_DIFFERENCE


def test_a_split_model_equals_the_whole(tmp_path: Path, ids: npt.NDArray[np.int32]) -> None:
    build_only("olmoe", tmp_path)
    encoded = list(oracle_gguf.encode(oracle_gguf.pieces_of(tmp_path), lambda _: "F32"))
    oracle_gguf.write(tmp_path / "whole.gguf", tmp_path, encoded)
    oracle_gguf.write(tmp_path / "split.gguf", tmp_path, encoded, split_max_tensors=20)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    assert len(parts) > 2
    whole = forward_in_chunks(load(tmp_path / "whole.gguf", "default"), ids, 8)
    for part in (parts[0], parts[-1]):
        np.testing.assert_array_equal(forward_in_chunks(load(part, "default"), ids, 8), whole)
