"""Build the demo: SmolLM2-135M-Instruct's own weights rearranged into a mixture of experts.

Every feed-forward network but the first is a sum over 1536 neurons, cut here into one shared
expert of 384 neurons and 36 routed experts of 32 (`data/demo_routing_36x32.npz` says which neuron
goes where and holds the router). With all experts chosen the sum is the original network again.
Weights are copied block for block; only `down`, whose columns move across quantization groups,
becomes F16. The result is one GGUF file of the architecture `glm4moe`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.gguf import GgufFile, GgufTensor
from colibri_engine.loader.gguf_writer import MetadataValue, TensorPlan, write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

ROUTING_FILE: Final = "demo_routing_36x32.npz"
NUM_EXPERTS: Final = 36
EXPERTS_PER_TOKEN: Final = 27
EXPERT_WIDTH: Final = 32
SHARED_EXPERTS: Final = 12
SHARED_WIDTH: Final = SHARED_EXPERTS * EXPERT_WIDTH
ROUTED_SCALE: Final = 2.0
ROUTER_SCALE: Final = 2.0**-8  # the stored rows have standard deviation 1: unusable unscaled
BIAS_SCALE: Final = ROUTER_SCALE / 4

_SIGMOID_GATING: Final = 2
_MOSTLY_Q4_1: Final = 3  # general.file_type
_CARRIED_OVER: Final = ("tokenizer.", "general.license", "general.languages")


@dataclass(frozen=True, slots=True)
class Routing:
    """Where each neuron goes, and the router. Layer L of the model is at index L - 1.

    Args:
        order: (layers, neurons) the shared neurons first, then expert after expert.
        gate: (layers, experts, hidden) router rows, unscaled.
        bias: (layers, experts) selection intercepts, unscaled.
    """

    order: npt.NDArray[np.int64]
    gate: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    @classmethod
    def load(cls) -> Routing:
        """Read the file that comes with the package."""
        resource = files("colibri_engine") / "data" / ROUTING_FILE
        with resource.open("rb") as file, np.load(file) as arrays:
            return cls(
                arrays["order"].astype(np.int64),
                arrays["gate"].astype(np.float32),
                arrays["bias"].astype(np.float32),
            )


def run(argv: list[str], report: Callable[[int, int], None]) -> None:
    """Read `--source`, write `--out`.

    Raises:
        CheckpointError: the source is damaged or not the expected model.
    """
    parser = argparse.ArgumentParser(prog="build-demo")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    build(arguments.source, arguments.out, report)


def build(source: Path, out: Path, report: Callable[[int, int], None]) -> None:
    """Write the demo made from the GGUF file `source` to `out`, which must not exist yet.

    Raises:
        CheckpointError: the source is damaged or not the expected model.
    """
    file = GgufFile(source)
    try:
        plan = _DemoPlan(file, Routing.load())
        tensors = plan.tensors()
        total = sum(tensor.nbytes for tensor in tensors)
        with out.open("xb") as stream:
            for done in write_gguf(stream, plan.metadata(), tensors):
                report(done, total)
    finally:
        file.close()


class _DemoPlan:
    """The tensors and metadata of the demo, each produced from the source when written."""

    def __init__(self, file: GgufFile, routing: Routing) -> None:
        self._file = file
        self._routing = routing
        self._num_layers = self._number("block_count")
        self._num_heads = self._number("attention.head_count")
        self._num_kv_heads = self._number("attention.head_count_kv")
        self._hidden_size = self._number("embedding_length")
        self._num_neurons = self._number("feed_forward_length")
        expected = (self._num_layers - 1, self._num_neurons)
        experts = (self._num_layers - 1, NUM_EXPERTS, self._hidden_size)
        if routing.order.shape != expected or routing.gate.shape != experts:
            raise self._not_the_source(f"it has {self._num_layers} layers of other sizes")

    def metadata(self) -> dict[str, MetadataValue]:
        """Return all metadata pairs of the file."""
        source = self._file.metadata
        pairs: dict[str, MetadataValue] = {
            "general.architecture": "glm4moe",
            "general.type": "model",
            "general.name": "coli demo (SmolLM2-135M-Instruct as a mixture of 36 experts)",
            "general.basename": "demo",
            "general.size_label": "36x135M",
            "general.file_type": _MOSTLY_Q4_1,
            "general.quantization_version": 2,
        }
        own: dict[str, MetadataValue] = {
            "block_count": self._num_layers,
            "context_length": self._number("context_length"),
            "embedding_length": self._hidden_size,
            "feed_forward_length": self._num_neurons,
            "attention.head_count": self._num_heads,
            "attention.head_count_kv": self._num_kv_heads,
            "attention.key_length": self._head_dim,
            "attention.value_length": self._head_dim,
            "attention.layer_norm_rms_epsilon": float(
                source["llama.attention.layer_norm_rms_epsilon"]
            ),
            "rope.freq_base": float(source["llama.rope.freq_base"]),
            "rope.dimension_count": self._head_dim,  # all channels rotate
            "vocab_size": self._tensor("token_embd.weight").shape[0],
            "leading_dense_block_count": 1,
            "expert_count": NUM_EXPERTS,
            "expert_used_count": EXPERTS_PER_TOKEN,
            "expert_shared_count": SHARED_EXPERTS,
            "expert_feed_forward_length": EXPERT_WIDTH,
            "expert_shared_feed_forward_length": SHARED_WIDTH,
            "expert_weights_scale": ROUTED_SCALE,
            "expert_weights_norm": False,
            "expert_gating_func": _SIGMOID_GATING,
            "expert_group_count": 1,
            "expert_group_used_count": 1,
            "nextn_predict_layers": 0,
        }
        pairs.update({f"glm4moe.{key}": value for key, value in own.items()})
        carried = {k: v for k, v in source.items() if k.startswith(_CARRIED_OVER)}
        return {**pairs, **carried}

    def tensors(self) -> list[TensorPlan]:
        """Return all tensors in file order."""
        plans = [self._copied("token_embd.weight"), self._copied("output_norm.weight")]
        for layer in range(self._num_layers):
            plans += self._attention(layer)
            plans += self._dense(layer) if layer == 0 else self._mixture(layer)
        return plans

    @property
    def _head_dim(self) -> int:
        return self._hidden_size // self._num_heads

    def _attention(self, layer: int) -> list[TensorPlan]:
        prefix = f"blk.{layer}"
        queries = _half_split_rows(self._num_heads, self._head_dim)
        keys = _half_split_rows(self._num_kv_heads, self._head_dim)
        return [
            self._copied(f"{prefix}.attn_norm.weight"),
            self._with_rows(f"{prefix}.attn_q.weight", f"{prefix}.attn_q.weight", queries),
            self._with_rows(f"{prefix}.attn_k.weight", f"{prefix}.attn_k.weight", keys),
            self._copied(f"{prefix}.attn_v.weight"),
            self._copied(f"{prefix}.attn_output.weight"),
            self._copied(f"{prefix}.ffn_norm.weight", f"{prefix}.post_attention_norm.weight"),
        ]

    def _dense(self, layer: int) -> list[TensorPlan]:
        return [self._copied(f"blk.{layer}.ffn_{part}.weight") for part in ("gate", "up", "down")]

    def _mixture(self, layer: int) -> list[TensorPlan]:
        prefix = f"blk.{layer}"
        order = self._routing.order[layer - 1]
        shared, routed = order[:SHARED_WIDTH], order[SHARED_WIDTH:]
        gate = self._routing.gate[layer - 1] * np.float32(ROUTER_SCALE)
        bias = self._routing.bias[layer - 1] * np.float32(BIAS_SCALE)
        experts = (NUM_EXPERTS, EXPERT_WIDTH, self._hidden_size)
        plans = [
            TensorPlan(f"{prefix}.ffn_gate_inp.weight", gate.shape, "F32", lambda: gate),
            TensorPlan(f"{prefix}.exp_probs_b.bias", bias.shape, "F32", lambda: bias),
        ]
        for part in ("gate", "up"):
            name = f"{prefix}.ffn_{part}.weight"
            plans += [
                self._with_rows(name, f"{prefix}.ffn_{part}_shexp.weight", shared),
                self._with_rows(name, f"{prefix}.ffn_{part}_exps.weight", routed, experts),
            ]
        return [*plans, *self._down(prefix, shared, routed)]

    def _down(
        self, prefix: str, shared: npt.NDArray[np.int64], routed: npt.NDArray[np.int64]
    ) -> list[TensorPlan]:
        name = f"{prefix}.ffn_down.weight"

        def shared_columns() -> npt.NDArray[np.float16]:
            return self._dequantized(name)[:, shared].astype(np.float16)  # (hidden, shared)

        def routed_columns() -> npt.NDArray[np.float16]:
            columns = self._dequantized(name)[:, routed].astype(np.float16)
            columns = columns.reshape(self._hidden_size, NUM_EXPERTS, EXPERT_WIDTH)
            return columns.transpose(1, 0, 2)  # (experts, hidden, width)

        return [
            TensorPlan(
                f"{prefix}.ffn_down_shexp.weight",
                (self._hidden_size, SHARED_WIDTH),
                "F16",
                shared_columns,
            ),
            TensorPlan(
                f"{prefix}.ffn_down_exps.weight",
                (NUM_EXPERTS, self._hidden_size, EXPERT_WIDTH),
                "F16",
                routed_columns,
            ),
        ]

    def _copied(self, name: str, new_name: str | None = None) -> TensorPlan:
        tensor = self._tensor(name)
        return TensorPlan(
            new_name or name, tensor.shape, tensor.type_name, lambda: self._rows(tensor)
        )

    def _with_rows(
        self,
        name: str,
        new_name: str,
        rows: npt.NDArray[np.int64],
        shape: tuple[int, ...] | None = None,
    ) -> TensorPlan:
        """Take whole rows of a source tensor in a new order, block for block."""
        tensor = self._tensor(name)
        return TensorPlan(
            new_name,
            shape or (len(rows), tensor.shape[-1]),
            tensor.type_name,
            lambda: self._rows(tensor)[rows],
        )

    def _rows(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        count = int(np.prod(tensor.shape[:-1], dtype=np.int64))
        return self._file.rows(tensor, 0, count)

    def _dequantized(self, name: str) -> npt.NDArray[np.float32]:
        """Return a Q4_1 matrix as numbers: value = scale · code + minimum, in float32."""
        tensor = self._tensor(name)
        if tensor.type_name != "Q4_1":
            raise self._not_the_source(f"{name} is {tensor.type_name}, not Q4_1")
        num_rows, num_columns = tensor.shape
        blocks = self._rows(tensor).reshape(-1, 20)  # 2 scale, 2 minimum, 16 bytes of codes
        scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
        minimum = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
        codes = np.concatenate([blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4], axis=1)
        return (scale * codes.astype(np.float32) + minimum).reshape(num_rows, num_columns)

    def _tensor(self, name: str) -> GgufTensor:
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise self._not_the_source(f"the tensor {name} is missing")
        return tensor

    def _number(self, key: str) -> int:
        value: Any = self._file.metadata.get(f"llama.{key}")
        if not isinstance(value, int):
            raise self._not_the_source(f"llama.{key} is missing")
        return value

    def _not_the_source(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{self._file.path} is not SmolLM2-135M-Instruct in Q4_1: {problem}",
            path=self._file.path,
            hint="run `coli pull demo` again",
        )


def _half_split_rows(num_heads: int, head_dim: int) -> npt.NDArray[np.int64]:
    """Return which source row each row is: `llama` files interleave the two rotary halves.

    Within a head the file holds rows 0, d/2, 1, d/2+1, …; `glm4moe` wants 0, 1, …, d-1.
    """
    rows = np.arange(num_heads * head_dim).reshape(num_heads, head_dim // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)  # (heads, 2, head_dim/2) flattened
