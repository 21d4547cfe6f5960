"""Tiny random models built by transformers, the reference that our forward pass must equal.

Every parameter and buffer is redrawn: with the library's own start values all logits are nearly
equal, and a bias that starts at zero hides every mistake in its use.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from tests.fakes.tiny_checkpoint import tokenizer_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

PROMPT_LENGTH = 40
NUM_GREEDY = 20
# A smaller difference between the two best logits decides nothing.
NARROWEST_GAP = 1e-3

_COMMON: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

_GLM4: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "attention_bias": True,
    "use_qk_norm": True,
    "num_nextn_predict_layers": 0,
}

_SOFTMAX_ROUTER: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3}
_OLMOE: dict[str, Any] = {
    **_SOFTMAX_ROUTER,
    "intermediate_size": 32,
    "num_key_value_heads": 4,
    "head_dim": 16,
}
_QWEN3: dict[str, Any] = {
    **_SOFTMAX_ROUTER,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

_GPT_OSS: dict[str, Any] = {
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "intermediate_size": 32,
    "sliding_window": 8,
    "swiglu_limit": 1.5,  # low enough to be met
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
}

_INKLING: dict[str, Any] = {
    "unpadded_vocab_size": 250,
    "num_hidden_layers": 8,  # layer 5 sees all keys
    "head_dim": 16,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 32,
    "sliding_window_size": 8,
    "d_rel": 8,
    "rel_extent": 32,
    "log_scaling_n_floor": 8,
    "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "logits_mup_width_multiplier": 4.0,
}

_MLA: dict[str, Any] = {
    "head_dim": 8,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 32,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}

_WIDE_LATENTS = {"q_lora_rank": 64, "kv_lora_rank": 64}

# With fewer index heads relu makes whole scores zero, and the reference breaks ties at random.
_GLM_DSA: dict[str, Any] = {
    **_MLA,
    "num_hidden_layers": 8,
    "first_k_dense_replace": 2,
    "index_head_dim": 16,
    "index_n_heads": 16,
    "index_topk": 8,
    "index_topk_freq": 3,
    "index_skip_topk_offset": 2,
    "num_nextn_predict_layers": 0,
}
_GLM_DSA_FULL: dict[str, Any] = {**_GLM_DSA, "index_topk_freq": 1}

_DEEPSEEK: dict[str, Any] = {
    **_MLA,
    "n_routed_experts": 16,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "num_mtp_layers": 0,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "glm_moe_dsa": ("GlmMoeDsa", _GLM_DSA),
    "glm_moe_dsa-all-full": ("GlmMoeDsa", _GLM_DSA_FULL),
    "glm_moe_dsa-groups": ("GlmMoeDsa", {**_GLM_DSA_FULL, "n_group": 2, "topk_group": 1}),
    # Decoding crosses the length up to which attention is dense.
    "glm_moe_dsa-short-prompt": ("GlmMoeDsa", {**_GLM_DSA, "index_topk": 16}),
    # Latents and index keys so small that the epsilons of their norms count.
    "glm_moe_dsa-small-latents": ("GlmMoeDsa", _GLM_DSA),
    # Whole blocks of the quantized formats.
    "glm_moe_dsa-wide-latents": ("GlmMoeDsa", {**_GLM_DSA, **_WIDE_LATENTS}),
    "deepseek_v3-wide-latents": ("DeepseekV3", {**_DEEPSEEK, **_WIDE_LATENTS}),
    "deepseek_v3": ("DeepseekV3", _DEEPSEEK),
    "deepseek_v3-no-query-latent": (
        "DeepseekV3",
        {
            **_DEEPSEEK,
            "num_hidden_layers": 3,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "rope_parameters": _MLA["rope_parameters"],
        },
    ),
    "deepseek_v3-half-rope": ("DeepseekV3", {**_DEEPSEEK, "rope_interleave": False}),
    "kimi_k2": (
        "DeepseekV3",
        {
            **_DEEPSEEK,
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 2.827,
            "rope_parameters": {
                **_DEEPSEEK["rope_parameters"],
                "rope_theta": 50000.0,
                "factor": 32.0,
                "beta_fast": 1.0,
            },
        },
    ),
    "llama": ("Llama", {"head_dim": 16, "tie_word_embeddings": True}),
    "llama-biases": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    ),
    "llama-scaled-rope": (
        "Llama",
        {
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "llama-yarn": (
        "Llama",
        {
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "glm4_moe": ("Glm4Moe", _GLM4),
    "glm4_moe-groups": (
        "Glm4Moe",
        {**_GLM4, "n_group": 4, "topk_group": 2, "use_qk_norm": False, "norm_topk_prob": False},
    ),
    "gpt_oss": ("GptOss", _GPT_OSS),
    "gpt_oss-plain": (
        "GptOss",
        {
            **_GPT_OSS,
            "attention_bias": False,
            "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "num_experts_per_tok": 8,
        },
    ),
    "inkling": ("InklingText", _INKLING),
    "inkling-as-published": ("Inkling", _INKLING),
    "inkling-all-global": (
        "InklingText",
        {
            **_INKLING,
            "num_hidden_layers": 3,
            "local_layer_ids": [],
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "log_scaling_n_floor": None,
            "conv_kernel_size": 3,
            "n_shared_experts": 1,
        },
    ),
    "olmoe": ("Olmoe", _OLMOE),
    "olmoe-clipped": (
        "Olmoe",
        {**_OLMOE, "num_key_value_heads": 2, "clip_qkv": 0.8, "norm_topk_prob": True},
    ),
    "qwen3_moe": ("Qwen3Moe", _QWEN3),
    "qwen3_moe-dense-layers": (
        "Qwen3Moe",
        {
            **_QWEN3,
            "num_hidden_layers": 6,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "norm_topk_prob": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}


# Published under a model_type of their own that the reference does not have.
_ALIASES = {"kimi_k2"}
_PROMPT_LENGTHS = {"glm_moe_dsa-short-prompt": 11}


@dataclass(frozen=True)
class Oracle:
    """One reference model and what it answers.

    Args:
        path: Its checkpoint, in the published layout.
        ids: (num_prompt + NUM_GREEDY,) prompt and greedy continuation.
        logits: As many rows (N, V) float32, teacher forced over `ids`.
        num_prompt: Ids of the prompt.
    """

    path: Path
    ids: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]
    num_prompt: int = PROMPT_LENGTH


# Mean and standard deviation by part of a parameter's name; the first match counts.
_SPREADS: tuple[tuple[str, float, float], ...] = (
    (".bias", 0.0, 0.1),
    ("norm", 1.0, 0.1),
    ("global_scale", 1.0, 0.2),
    ("sconv", 0.0, 0.3),
    ("rel_logits_proj", 0.0, 0.5),
    ("sinks", 0.0, 1.0),
    ("_bias", 0.0, 0.1),
)


def _spread(name: str, shape: torch.Size, config: Any) -> tuple[float, float]:  # noqa: ANN401
    """Return mean and standard deviation of a parameter."""
    for part, mean, std in _SPREADS:
        if part in name:
            return mean, std
    if len(shape) == 1:
        return 0.0, 0.1
    tied = getattr(config.get_text_config(), "tie_word_embeddings", False)
    if "embed_tokens" in name and not tied:
        return 0.0, 1.0
    stacked_inputs_first = len(shape) == 3 and config.model_type == "gpt_oss"
    return 0.0, shape[-2 if stacked_inputs_first else -1] ** -0.5


def _redraw(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1234)

    def draw(like: torch.Tensor, mean: float, std: float) -> None:
        like.copy_(mean + torch.randn(like.shape, generator=generator) * std)

    with torch.no_grad():
        for name, p in model.named_parameters():
            draw(p, *_spread(name, p.shape, model.config))
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name:
                draw(b, 0.0, 0.2)


def build(name: str, directory: Path) -> Oracle:
    """Build, save and run one reference model.

    Args:
        name: A key of CONFIGS.
        directory: Where its checkpoint goes.
    """
    model = build_only(name, directory)
    oracle = ask(model, directory, _PROMPT_LENGTHS.get(name, PROMPT_LENGTH))
    if hasattr(model.config, "index_topk"):
        _check_ties(model, oracle)
    return oracle


def build_only(name: str, directory: Path, **changes: object) -> Any:  # noqa: ANN401 - the library's own class
    """Build and save one reference model without running it.

    Args:
        name: A key of CONFIGS.
        directory: Where its checkpoint goes.
        changes: Configuration keys that differ.
    """
    model = make(name, **changes)
    model.save_pretrained(directory)
    if name in _ALIASES:
        path = directory / "config.json"
        write_json(path, json.loads(path.read_text("utf-8")) | {"model_type": name})
    write_json(directory / "tokenizer.json", tokenizer_json())
    return model


def logits_of(directory: Path, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Return the (len(ids), V) logits of a saved reference model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with torch.no_grad():
        logits = model(torch.from_numpy(ids).long()[None], use_cache=False).logits[0]
    return np.asarray(logits.numpy(), np.float32)


# The smallest towers: what they hold is to be passed over.
_TOWERS: dict[str, Any] = {
    "vision_config": {
        "patch_size": 2,
        "temporal_patch_size": 2,
        "num_hidden_layers": 3,
        "hidden_size": 16,
        "num_attention_heads": 2,
    },
    "audio_config": {"n_mel_bins": 4, "mel_vocab_size": 8},
}


def make(name: str, **changes: object) -> Any:  # noqa: ANN401 - the library's own class
    """Return one reference model with redrawn weights; see `build_only`."""
    family, extra = CONFIGS[name]
    keys = {**_COMMON, **extra, **changes}
    if family == "Inkling":
        config = transformers.InklingConfig(text_config=keys, **_TOWERS)
        model = transformers.InklingForConditionalGeneration(config)
    else:
        config = getattr(transformers, f"{family}Config")(**keys)
        model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
    model.set_attn_implementation("eager")
    model = model.float().eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    _redraw(model)
    if name.endswith("-small-latents"):
        _shrink_latents(model)
    return model


def _shrink_latents(model: torch.nn.Module) -> None:
    """Bring the inputs of the latent norms to a root mean square of 1e-3."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "q_a_proj" in name or "kv_a_proj" in name or "indexer.wk" in name:
                p.mul_(1e-3)


def _check_ties(model: Any, oracle: Oracle) -> None:  # noqa: ANN401 - the library's own class
    """Make sure that neither a token nor a chosen position is a matter of chance.

    Where scores of an indexer are equal the reference chooses differently with a cache.
    """
    ids = torch.from_numpy(oracle.ids).long()[None]
    with torch.no_grad():
        cached = model.generate(
            ids[:, : oracle.num_prompt], max_new_tokens=NUM_GREEDY, do_sample=False
        )
    assert torch.equal(cached, ids), "scores are tied: choose another seed"
    best = np.sort(oracle.logits[oracle.num_prompt - 1 : -1], axis=1)[:, -2:]
    assert (best[:, 1] - best[:, 0]).min() > NARROWEST_GAP, "two best tokens are equal"


def ask(model: Any, directory: Path, num_prompt: int = PROMPT_LENGTH) -> Oracle:  # noqa: ANN401
    """Return greedy ids and logits of a model, always from whole sequences, without a cache."""
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(0, 256, (num_prompt,), generator=generator)
    with torch.no_grad():
        for _ in range(NUM_GREEDY):
            logits = model(ids[None], use_cache=False).logits[0]
            ids = torch.cat([ids, logits[-1].argmax()[None]])
        logits = model(ids[None], use_cache=False).logits[0]
    return Oracle(
        directory, ids.numpy().astype(np.int32), logits.numpy().astype(np.float32), num_prompt
    )


def reference_logits(directory: Path, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Return (len(ids), V) logits of a checkpoint in float32, as transformers computes them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(ids.astype(np.int64))[None], use_cache=False).logits
    values: npt.NDArray[np.float32] = logits[0].numpy().astype(np.float32)
    return values
