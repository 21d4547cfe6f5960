"""From the rotary metadata of a GGUF file to `rope_parameters` of a published configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import UnsupportedModel
from colibri_engine.loader.gguf_names import ROPE_FACTORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.loader.metadata_reader import MetadataReader

_MAX_CONTEXT: Final = 1 << 30
_YARN_DEFAULTS: Final = {"beta_fast": 32.0, "beta_slow": 1.0}

# Share of a head that rotates when the file does not say.
_PARTIAL: Final = {"glm4moe": 0.5}
# Files of these keep a tenth of `mscale_all_dim`, to which `mscale` is then equal.
_LATENT: Final = frozenset({"deepseek2", "glm-dsa"})
# The published rule for these does not round the bounds of the blended range.
_EXACT_BOUNDS: Final = frozenset({"gpt-oss"})


def rope_of(
    architecture: str, data: MetadataReader, head_dim: int, factors: list[float] | None
) -> dict[str, Any]:
    """Return the rotary settings under their published names.

    Args:
        architecture: The file's `general.architecture`.
        data: Its metadata.
        head_dim: Channels of the part of a head that may rotate.
        factors: Contents of its frequency factors tensor, if it has one.

    Raises:
        CheckpointError: a value is out of range.
        UnsupportedModel: a rule is not implemented.
    """

    def key(name: str) -> str:
        return f"{architecture}.rope.{name}"

    default = round(head_dim * _PARTIAL.get(architecture, 1.0))
    rotated = data.integer(key("dimension_count"), 2, head_dim, default)
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": data.number(key("freq_base"), 10000.0),
    }
    if architecture in _PARTIAL:
        rope["partial_rotary_factor"] = rotated / head_dim
    elif rotated != head_dim:
        raise UnsupportedModel(
            f"{key('dimension_count')} is {rotated} of {head_dim}: partial rotary {architecture}"
        )
    if factors is not None:
        return _with_factors(rope, factors, rotated, data)
    linear = data.number(key("scale_linear"), 1.0)
    scaling = data.text(key("scaling.type"), "linear" if linear != 1.0 else "none")
    if scaling == "none":
        return rope
    rope["rope_type"] = scaling
    rope["factor"] = data.number(key("scaling.factor"), linear)
    if scaling == "yarn":
        rope |= _yarn(architecture, data)
    elif scaling != "linear":
        raise UnsupportedModel(f"{key('scaling.type')} is {scaling!r}, which is not supported")
    return rope


def _yarn(architecture: str, data: MetadataReader) -> dict[str, Any]:
    def key(name: str) -> str:
        return f"{architecture}.rope.scaling.{name}"

    for name in ("attn_factor", "yarn_ext_factor"):
        value = data.number(key(name), 1.0)
        if value != 1.0:
            raise UnsupportedModel(f"{key(name)} is {value}, which is not supported; 1 is")
    rope: dict[str, Any] = {
        "original_max_position_embeddings": data.integer(
            key("original_context_length"), 1, _MAX_CONTEXT
        ),
        **{name: data.number(key(f"yarn_{name}"), value) for name, value in _YARN_DEFAULTS.items()},
    }
    if key("yarn_attn_factor") in data:
        rope["attention_factor"] = data.number(key("yarn_attn_factor"))
    if architecture in _EXACT_BOUNDS:
        rope["truncate"] = False
    tenth = data.number(key("yarn_log_multiplier"), 0.0)
    if tenth and architecture not in _LATENT:
        raise UnsupportedModel(f"{key('yarn_log_multiplier')} is not supported")
    if tenth:
        # The file rounds the tenth to float32, which has seven digits.
        rope["mscale"] = rope["mscale_all_dim"] = float(f"{10 * tenth:.7g}")
    return rope


def _with_factors(
    rope: dict[str, Any], factors: list[float], rotated: int, data: MetadataReader
) -> dict[str, Any]:
    if len(factors) != rotated // 2 or not all(factor > 0 for factor in factors):
        raise data.fail(f"{ROPE_FACTORS} does not hold {rotated // 2} positive factors")
    llama3 = {
        "rope_type": "llama3",
        "factor": max(factors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if _gives(factors, rope["rope_theta"], llama3):
        return {**rope, **llama3}
    return {**rope, "rope_type": "frequency_factors", "frequency_factors": factors}


def _gives(factors: list[float], theta: float, rule: Mapping[str, Any]) -> bool:
    """Return whether a llama3 rule divides the frequencies by these factors, rounded to float32.

    Files hold the factors of the rule, not the rule; every published llama3 uses the same
    constants but for `factor`, which is the largest of them.
    """
    original = rule["original_max_position_embeddings"]
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    for place, found in enumerate(factors):
        turns = original * theta ** (-place / len(factors)) / (2 * math.pi)
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        wanted = 1.0 / ((1.0 - smooth) / rule["factor"] + smooth)
        if not math.isclose(found, wanted, rel_tol=1e-5):
            return False
    return True
