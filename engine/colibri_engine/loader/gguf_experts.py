"""What the metadata of a GGUF file says about experts and their router.

Absent keys mean what the architecture's published models do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_engine.loader.gguf import GgufTensor
    from colibri_engine.loader.metadata_reader import MetadataReader

_MAX_EXPERTS: Final = 4096
_MAX_WIDTH: Final = 1 << 20
_SOFTMAX, _SIGMOID, _SOFTMAX_OF_CHOSEN = 1, 2, 3
_SWIGLU_LIMIT: Final = 7.0  # every published gpt-oss; files do not say


def experts_of(
    architecture: str,
    data: MetadataReader,
    config: Mapping[str, Any],
    tensors: Mapping[str, GgufTensor],
) -> dict[str, Any]:
    """Return the keys of the mixture under their published names; none for a dense model.

    Args:
        architecture: The file's `general.architecture`.
        data: The metadata.
        config: What is known of the configuration already.
        tensors: The file's tensors.

    Raises:
        CheckpointError: a key is missing or out of range.
        UnsupportedModel: a rule is not implemented.
    """
    return _READERS[architecture](_Keys(architecture, data), config, tensors)


class _Keys:
    """The expert keys of one architecture."""

    def __init__(self, architecture: str, data: MetadataReader) -> None:
        self._architecture = architecture
        self.data = data

    def name(self, key: str) -> str:
        return f"{self._architecture}.{key}"

    def __contains__(self, key: str) -> bool:
        return self.name(key) in self.data

    def integer(self, key: str, low: int, high: int, *default: int | None) -> Any:  # noqa: ANN401
        return self.data.integer(self.name(key), low, high, *default)

    def counts(self) -> tuple[int, int]:
        """Experts, and how many of them a row goes to."""
        count = self.integer("expert_count", 1, _MAX_EXPERTS)
        return count, self.integer("expert_used_count", 1, count)

    def require_gating(self, wanted: int, word: str, default: int | None) -> None:
        found = self.integer("expert_gating_func", 0, 255, default)
        if found != wanted:
            raise UnsupportedModel(
                f"{self.name('expert_gating_func')} is not {word}, which is all that is "
                f"implemented for {self._architecture}"
            )

    def normalizes(self, *, default: bool) -> bool:
        found: bool = self.data.boolean(self.name("expert_weights_norm"), default)
        return found

    def scale(self) -> float:
        """The routed experts' common factor; 0 stands for none."""
        return self.data.number(self.name("expert_weights_scale"), 1.0) or 1.0

    def require_no_scale(self) -> None:
        if self.scale() != 1.0:
            raise UnsupportedModel(
                f"{self.name('expert_weights_scale')} is {self.scale()}, which is not supported "
                f"for {self._architecture}"
            )


if TYPE_CHECKING:
    _Reader = Callable[[_Keys, Mapping[str, Any], Mapping[str, GgufTensor]], dict[str, Any]]


def _llama(
    keys: _Keys, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    del config, tensors
    if keys.integer("expert_count", 0, _MAX_EXPERTS, 0):
        raise UnsupportedModel(
            f"{keys.name('expert_count')} is set: a llama with experts, which is not supported"
        )
    return {}


def _olmoe(
    keys: _Keys, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    del tensors
    keys.require_gating(_SOFTMAX, "softmax", _SOFTMAX)
    keys.require_no_scale()
    num_experts, num_chosen = keys.counts()
    return {
        "num_experts": num_experts,
        "num_experts_per_tok": num_chosen,
        "intermediate_size": keys.integer(
            "expert_feed_forward_length", 1, _MAX_WIDTH, config["intermediate_size"]
        ),
        "norm_topk_prob": keys.normalizes(default=False),
    }


def _qwen3(
    keys: _Keys, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    del config, tensors
    keys.require_gating(_SOFTMAX, "softmax", _SOFTMAX)
    keys.require_no_scale()
    num_experts, num_chosen = keys.counts()
    return {
        "num_experts": num_experts,
        "num_experts_per_tok": num_chosen,
        "moe_intermediate_size": keys.integer("expert_feed_forward_length", 1, _MAX_WIDTH),
        "norm_topk_prob": keys.normalizes(default=True),
    }


def _noaux(
    keys: _Keys, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    """GLM-4.5 to 5.2, DeepSeek-V3, Kimi K2: sigmoids with a correction that moves the choice."""
    has_correction = any(name.endswith(".exp_probs_b.bias") for name in tensors)
    keys.require_gating(_SIGMOID, "sigmoid", _SIGMOID if has_correction else 0)
    num_experts, num_chosen = keys.counts()
    width = keys.integer("expert_feed_forward_length", 1, _MAX_WIDTH)
    num_shared = keys.integer("expert_shared_count", 0, 64)
    shared_width = keys.integer(
        "expert_shared_feed_forward_length", 0, _MAX_WIDTH, width * num_shared
    )
    if shared_width != width * num_shared:
        raise UnsupportedModel(
            f"{keys.name('expert_shared_feed_forward_length')} is {shared_width}: shared experts "
            f"are {width} wide, {num_shared} of them"
        )
    num_layers = config["num_hidden_layers"]
    num_drafts = keys.integer("nextn_predict_layers", 0, num_layers - 1, 0)
    return {
        "num_hidden_layers": num_layers - num_drafts,
        "num_nextn_predict_layers": num_drafts,
        "first_k_dense_replace": keys.integer("leading_dense_block_count", 0, num_layers, 0),
        "n_routed_experts": num_experts,
        "num_experts_per_tok": num_chosen,
        "n_shared_experts": num_shared,
        "moe_intermediate_size": width,
        "n_group": keys.integer("expert_group_count", 1, num_experts, 1),
        "topk_group": keys.integer("expert_group_used_count", 1, num_experts, 1),
        "norm_topk_prob": keys.normalizes(default=False),
        "routed_scaling_factor": keys.scale(),
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
    }


def _gpt_oss(
    keys: _Keys, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    del tensors
    keys.require_gating(_SOFTMAX_OF_CHOSEN, "softmax of the chosen", _SOFTMAX_OF_CHOSEN)
    keys.require_no_scale()
    num_experts, num_chosen = keys.counts()
    return {
        "num_local_experts": num_experts,
        "num_experts_per_tok": num_chosen,
        "intermediate_size": keys.integer(
            "expert_feed_forward_length", 1, _MAX_WIDTH, config["intermediate_size"]
        ),
        "swiglu_limit": _SWIGLU_LIMIT,
    }


_READERS: Final[Mapping[str, _Reader]] = {
    "llama": _llama,
    "olmoe": _olmoe,
    "qwen3moe": _qwen3,
    "glm4moe": _noaux,
    "deepseek2": _noaux,
    "glm-dsa": _noaux,
    "gpt-oss": _gpt_oss,
}
