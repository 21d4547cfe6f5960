"""The demo's file against the model it is made from, read with the reference GGUF reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.jobs import build_demo
from colibri_engine.jobs import main as run_job
from colibri_engine.loader.gguf import GgufFile
from colibri_engine.loader.gguf_writer import MetadataValue, TensorPlan, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

gguf = pytest.importorskip("gguf")

LAYERS, HEADS, KV_HEADS, HIDDEN, NEURONS, VOCAB = 3, 2, 1, 64, 1536, 40
HEAD_DIM = HIDDEN // HEADS


def _q4_1(rng: np.random.Generator, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    blocks = rng.integers(0, 256, (rows, columns // 32, 20), dtype=np.uint8)
    numbers = rng.normal(0, 0.02, (rows, columns // 32, 2)).astype("<f2")
    blocks[..., :4] = numbers.view(np.uint8)
    return blocks.reshape(rows, -1)


def _plan(
    name: str, shape: tuple[int, ...], kind: str, data: npt.NDArray[np.generic]
) -> TensorPlan:
    return TensorPlan(name, shape, kind, lambda: data)


def _write_source(path: Path) -> None:
    rng = np.random.default_rng(1)
    norm = rng.normal(1, 0.1, HIDDEN).astype(np.float32)
    embedding = rng.normal(0, 1, (VOCAB, HIDDEN)).astype(np.float16)
    tensors = [
        _plan("token_embd.weight", (VOCAB, HIDDEN), "F16", embedding),
        _plan("output_norm.weight", (HIDDEN,), "F32", norm),
    ]
    matrices = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (NEURONS, HIDDEN),
        "ffn_up": (NEURONS, HIDDEN),
        "ffn_down": (HIDDEN, NEURONS),
    }
    for layer in range(LAYERS):
        tensors += [
            _plan(f"blk.{layer}.{name}.weight", (HIDDEN,), "F32", norm + layer)
            for name in ("attn_norm", "ffn_norm")
        ]
        tensors += [
            _plan(f"blk.{layer}.{name}.weight", shape, "Q4_1", _q4_1(rng, *shape))
            for name, shape in matrices.items()
        ]
    metadata: dict[str, MetadataValue] = {
        "general.architecture": "llama",
        "general.license": "apache-2.0",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": NEURONS,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(VOCAB)],
        "tokenizer.ggml.token_type": np.ones(VOCAB, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ 'é' }}",
    }
    with path.open("wb") as file:
        for _ in write_gguf(file, metadata, tensors):
            pass


@pytest.fixture(scope="module")
def routing() -> build_demo.Routing:
    rng = np.random.default_rng(2)
    return build_demo.Routing(
        order=np.stack([rng.permutation(NEURONS) for _ in range(LAYERS - 1)]),
        gate=rng.normal(0, 1, (LAYERS - 1, 36, HIDDEN)).astype(np.float32),
        bias=rng.normal(0, 1, (LAYERS - 1, 36)).astype(np.float32),
    )


@pytest.fixture
def built(
    tmp_path: Path, routing: build_demo.Routing, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    monkeypatch.setattr(build_demo.Routing, "load", classmethod(lambda cls: routing))
    source, out = tmp_path / "source.gguf", tmp_path / "demo.gguf"
    _write_source(source)
    build_demo.build(source, out, lambda done, total: None)
    return source, out


def _tensors(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def _numbers(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    reader = gguf.GGUFReader(path)
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors
    }


def test_metadata_names_the_architecture_as_the_reference_package_does(
    built: tuple[Path, Path],
) -> None:
    fields = {key: field.contents() for key, field in gguf.GGUFReader(built[1]).fields.items()}
    llm = gguf.Keys.LLM
    expected = {
        llm.EXPERT_COUNT: 36,
        llm.EXPERT_USED_COUNT: 27,
        llm.EXPERT_SHARED_COUNT: 12,
        llm.EXPERT_FEED_FORWARD_LENGTH: 32,
        llm.EXPERT_WEIGHTS_SCALE: 2.0,
        llm.EXPERT_WEIGHTS_NORM: False,
        llm.EXPERT_GATING_FUNC: int(gguf.ExpertGatingFuncType.SIGMOID),
        llm.LEADING_DENSE_BLOCK_COUNT: 1,
        gguf.Keys.Rope.DIMENSION_COUNT: HEAD_DIM,
    }
    architecture = gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.GLM4_MOE]
    assert fields["general.architecture"] == architecture
    for key, value in expected.items():
        assert fields[key.format(arch=architecture)] == value, key


def test_tokenizer_and_template_are_carried_over(built: tuple[Path, Path]) -> None:
    readers = [gguf.GGUFReader(path) for path in built]
    source, demo = ({k: f.contents() for k, f in reader.fields.items()} for reader in readers)
    carried = [key for key in source if key.startswith("tokenizer.")]
    assert len(carried) == 6
    assert all(demo[key] == source[key] for key in carried)
    types = [{k: f.types for k, f in reader.fields.items()} for reader in readers]
    assert all(types[0][key] == types[1][key] for key in carried)


def test_tensor_names_are_those_of_the_reference_package(built: tuple[Path, Path]) -> None:
    known = {gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.GLM4_MOE]}
    patterns = {name.format(bid=layer) for name in known for layer in range(LAYERS)}
    for name in _tensors(built[1]):
        assert name.removesuffix(".weight").removesuffix(".bias") in patterns, name


def test_blocks_are_copied_bit_for_bit(
    built: tuple[Path, Path], routing: build_demo.Routing
) -> None:
    source, demo = (_tensors(path) for path in built)
    for name in ("token_embd", "output_norm", "blk.0.ffn_down", "blk.2.attn_v"):
        assert np.array_equal(source[f"{name}.weight"], demo[f"{name}.weight"]), name
    order = routing.order[1]
    for part in ("gate", "up"):
        rows = source[f"blk.2.ffn_{part}.weight"]
        assert np.array_equal(demo[f"blk.2.ffn_{part}_shexp.weight"], rows[order[:384]])
        experts = demo[f"blk.2.ffn_{part}_exps.weight"]
        assert np.array_equal(experts, rows[order[384:]].reshape(36, 32, -1))
        assert np.array_equal(demo[f"blk.0.ffn_{part}.weight"], source[f"blk.0.ffn_{part}.weight"])


def test_query_and_key_rows_go_back_to_half_split_order(built: tuple[Path, Path]) -> None:
    source, demo = (_tensors(path) for path in built)
    for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
        ours = demo[f"blk.1.{name}.weight"].reshape(heads, 2, HEAD_DIM // 2, -1)
        interleaved = ours.swapaxes(1, 2).reshape(heads * HEAD_DIM, -1)
        assert np.array_equal(interleaved, source[f"blk.1.{name}.weight"]), name


def test_all_experts_together_are_the_dense_network(
    built: tuple[Path, Path], routing: build_demo.Routing
) -> None:
    source, demo = (_numbers(path) for path in built)
    x = np.random.default_rng(3).normal(0, 1, HIDDEN)

    def network(
        gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], down: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float64]:
        z = gate.astype(np.float64) @ x
        hidden = z / (1 + np.exp(-z)) * (up.astype(np.float64) @ x)
        result: npt.NDArray[np.float64] = down.astype(np.float64) @ hidden
        return result

    dense = network(*(source[f"blk.1.ffn_{part}.weight"] for part in ("gate", "up", "down")))
    mixed = network(*(demo[f"blk.1.ffn_{part}_shexp.weight"] for part in ("gate", "up", "down")))
    for expert in range(36):
        mixed += network(
            *(demo[f"blk.1.ffn_{part}_exps.weight"][expert] for part in ("gate", "up", "down"))
        )
    assert np.abs(mixed - dense).max() < 1e-3 * np.abs(dense).max()
    assert np.array_equal(demo["blk.1.ffn_gate_inp.weight"], routing.gate[0] * 2.0**-8)
    assert np.array_equal(demo["blk.1.exp_probs_b.bias"], routing.bias[0] * 2.0**-10)


def test_shipped_routing_is_a_permutation_per_layer() -> None:
    routing = build_demo.Routing.load()
    assert routing.order.shape == (29, 1536)
    assert all(sorted(order) == list(range(1536)) for order in routing.order)


def test_other_models_are_refused_by_name(tmp_path: Path) -> None:
    source = tmp_path / "other.gguf"
    _write_source(source)
    with pytest.raises(CheckpointError, match="is not SmolLM2-135M-Instruct"):
        build_demo.build(source, tmp_path / "out.gguf", lambda done, total: None)


def test_job_reports_progress_and_one_error_line(
    tmp_path: Path,
    routing: build_demo.Routing,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build_demo.Routing, "load", classmethod(lambda cls: routing))
    source, out = tmp_path / "source.gguf", tmp_path / "demo.gguf"
    _write_source(source)
    arguments = ["build-demo", "--source", str(source), "--out", str(out)]
    assert run_job(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("PROGRESS ") for line in lines)
    _, done, total = lines[-1].split()
    assert done == total
    source.write_bytes(b"GGUFnothing")
    assert run_job(arguments) == 3
    hint, error = capsys.readouterr().out.splitlines()  # the remedy comes with the one error
    assert hint.startswith("HINT ")
    assert error.startswith("ERROR checkpoint_error ")
    assert run_job(["nonsense"]) == 2


def test_writer_and_loader_agree(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    _write_source(source)
    file = GgufFile(source)
    try:
        assert file.metadata["tokenizer.chat_template"] == "{{ 'é' }}"
        assert file.tensors["blk.1.ffn_down.weight"].shape == (HIDDEN, NEURONS)
    finally:
        file.close()
