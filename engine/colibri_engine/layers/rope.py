"""Rotary frequencies from a configuration, in either of its spellings.

Source: RoFormer, arXiv 2104.09864; YaRN, arXiv 2309.00071; the llama3 rule is the one published
with Llama 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Rope
from colibri_engine.loader.json_file import finite_number, shown

# Real settings lie far inside; quotients and logarithms of these stay finite.
_SMALLEST: Final = 1e-9
_LARGEST: Final = 1e12


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """The angles of one model: pair j at position p turns by p * frequencies[j].

    Args:
        rotated: Channels of a head that turn, twice as many as there are frequencies.
        frequencies: Radians per position.
        scale: Factor of every cosine and sine; not 1 under YaRN.
    """

    rotated: int
    frequencies: list[float]
    scale: float


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary settings, wherever the configuration keeps them; nulls are left out.

    Newer files write one `rope_parameters` object; older ones `rope_scaling`, `rope_theta` and
    `partial_rotary_factor` beside each other.

    Raises:
        UnsupportedModel: they are no object, rules for one kind of layer, or contradict each other.
    """
    merged: dict[str, Any] = {}
    stretching: dict[str, Any] = {}
    for key in ("rope_theta", "partial_rotary_factor"):
        if config.get(key) is not None:
            merged[key] = config[key]
    for key in ("rope_scaling", "rope_parameters"):
        given = _one_rule(config, key)
        for name in stretching.keys() & given.keys() - {"type"}:
            if given[name] != stretching[name]:
                raise UnsupportedModel(
                    f"config key rope_parameters says {name} = {shown(given[name])}, rope_scaling "
                    f"{shown(stretching[name])}",
                    hint="repair the configuration: leave one of the two out",
                )
        stretching |= given
    merged |= stretching
    # Where both places give the length of the training before stretching, the outer one counts;
    # where none does, the model was not trained longer than it says.
    if config.get("original_max_position_embeddings") is not None:
        merged["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    elif config.get("max_position_embeddings"):
        merged.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    return merged


def _one_rule(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the settings that one key holds for all layers; empty where it is absent or null."""
    nested = config.get(key)
    if nested is None:
        return {}
    if not isinstance(nested, Mapping):
        raise UnsupportedModel(
            f"config key {key} is {shown(nested)}, not an object",
            hint="repair the configuration",
        )
    for name, value in nested.items():
        if isinstance(value, Mapping):
            raise UnsupportedModel(
                f"config key {key} has rules of its own for {shown(name)}",
                hint="supported: one rule for all layers",
            )
    given = {name: value for name, value in nested.items() if value is not None}
    if "type" in given:
        given.setdefault("rope_type", given["type"])
    return given


def build_rope(
    config: Mapping[str, Any],
    head_dim: int,
    *,
    default_theta: float,
    default_partial: float = 1.0,
    interleaved: bool = False,
) -> Rope:
    """Return the rotary embedding of one model.

    Args:
        config: Keys of `config.json`.
        head_dim: Channels of a head.
        default_theta: Base when the configuration has none.
        default_partial: Rotated share of a head when the configuration has none.
        interleaved: Whether neighbouring channels rotate together.

    Raises:
        UnsupportedModel: a scaling rule that is not implemented, or a value out of range.
    """
    table = rotary_table(
        config, head_dim, default_theta=default_theta, default_partial=default_partial
    )
    return Rope(table.rotated, table.frequencies, table.scale, interleaved)


def rotary_table(
    config: Mapping[str, Any],
    head_dim: int,
    *,
    default_theta: float,
    default_partial: float = 1.0,
) -> RotaryTable:
    """Return the frequencies and the scale that a configuration asks for; see `build_rope`."""
    parameters = rope_parameters(config)
    theta = _number(parameters, "rope_theta", default_theta)
    partial = _number(parameters, "partial_rotary_factor", default_partial)
    rotated = round(head_dim * partial)
    if theta <= 1 or not 2 <= rotated <= head_dim or rotated % 2:
        raise UnsupportedModel(
            f"rope_theta {theta} with partial_rotary_factor {partial} rotates {rotated} of "
            f"{head_dim} channels",
            hint="the configuration is damaged, or of a kind this version does not know",
        )
    frequencies = [theta ** (-2.0 * j / rotated) for j in range(rotated // 2)]
    frequencies, scale = _stretched(frequencies, theta, parameters)
    return RotaryTable(rotated, frequencies, scale)


def check_rotation(config: Mapping[str, Any]) -> None:
    """Refuse rotary settings that no model here can follow, before a weight is read.

    Raises:
        UnsupportedModel: a scaling rule that is not implemented, or a value out of range.
    """
    parameters = rope_parameters(config)
    theta = _number(parameters, "rope_theta", 10_000.0)
    if theta <= 1:
        raise UnsupportedModel(
            f"rope_theta {theta} is not above 1", hint="repair the configuration"
        )
    if parameters.get("rope_type") != "frequency_factors":  # as many as a head has pairs
        _stretched([1.0, theta**-0.5], theta, parameters)
    yarn_score_scale(config)


def _stretched(
    frequencies: list[float], theta: float, parameters: Mapping[str, Any]
) -> tuple[list[float], float]:
    """Return the frequencies under the rule for longer contexts, and the factor of their angles."""
    rule = parameters.get("rope_type", "default")
    if rule == "llama3":
        return [_llama3(f, parameters) for f in frequencies], 1.0
    if rule == "yarn":
        return _yarn(frequencies, theta, parameters), _yarn_scale(parameters)
    if rule == "linear":
        factor = _positive(parameters, "factor", 1.0)
        return [f / factor for f in frequencies], 1.0
    if rule == "frequency_factors":
        return _divided(frequencies, parameters.get("frequency_factors")), 1.0
    if rule not in ("default", None):
        raise UnsupportedModel(
            f"rope_type {shown(rule)} is not supported",
            hint="supported: default, linear, llama3, yarn, frequency_factors",
        )
    return frequencies, 1.0


def yarn_score_scale(config: Mapping[str, Any]) -> float:
    """Return what latent attention multiplies its softmax scale by: m(factor, mscale_all_dim)^2.

    1 without a scaling rule and where `mscale_all_dim` is absent or 0. Grouped-query models do
    not use it.

    Raises:
        UnsupportedModel: a value is no number or out of range.
    """
    parameters = rope_parameters(config)
    weight = _weight(parameters, "mscale_all_dim")
    if weight == 0.0 or parameters.get("rope_type", "default") == "default":
        return 1.0
    return _magnitude(_yarn_factor(parameters), weight) ** 2


def _number(parameters: Mapping[str, Any], key: str, default: float) -> float:
    value = parameters.get(key, default)
    number = finite_number(value)
    if number is None:
        raise UnsupportedModel(
            f"rope parameter {key} is {shown(value)}, not a number", hint="repair the configuration"
        )
    return number


def _positive(parameters: Mapping[str, Any], key: str, default: float) -> float:
    value = _number(parameters, key, default)
    if not _SMALLEST <= value <= _LARGEST:
        raise UnsupportedModel(
            f"rope parameter {key} is {value}, outside {_SMALLEST}..{_LARGEST}",
            hint="repair the configuration",
        )
    return value


def _divided(frequencies: list[float], factors: object) -> list[float]:
    """One divisor per frequency, as GGUF files carry them."""
    if not isinstance(factors, list) or len(factors) != len(frequencies):
        raise UnsupportedModel(
            f"frequency_factors must be a list of {len(frequencies)} numbers",
            hint="the model file is damaged",
        )
    numbers = [number for f in factors if (number := finite_number(f)) is not None and number > 0]
    if len(numbers) != len(factors):
        raise UnsupportedModel(
            "frequency_factors holds a value that is not positive and finite",
            hint="the model file is damaged",
        )
    return [frequency / factor for frequency, factor in zip(frequencies, numbers, strict=True)]


def _llama3(frequency: float, parameters: Mapping[str, Any]) -> float:
    """Slow frequencies are divided by `factor`, fast ones kept, those between are blended."""
    factor = _positive(parameters, "factor", 8.0)
    low = _positive(parameters, "low_freq_factor", 1.0)
    high = _positive(parameters, "high_freq_factor", 4.0)
    original = _positive(parameters, "original_max_position_embeddings", 8192)
    if high <= low:
        raise UnsupportedModel(
            f"rope parameter high_freq_factor is {high}, not above low_freq_factor {low}",
            hint="repair the configuration",
        )
    wavelength = 2.0 * math.pi / frequency
    if wavelength < original / high:
        return frequency
    if wavelength > original / low:
        return frequency / factor
    smooth = (original / wavelength - low) / (high - low)
    return frequency * ((1.0 - smooth) / factor + smooth)


def _yarn(frequencies: list[float], theta: float, parameters: Mapping[str, Any]) -> list[float]:
    """Blend by the turns a channel makes in the original length: many stay, few are divided.

    Channel pairs below `low` keep their frequency, those above `high` are divided by `factor`, a
    straight line lies between.
    """
    factor = _yarn_factor(parameters)
    rotated = 2 * len(frequencies)
    length = _positive(parameters, "original_max_position_embeddings", 0.0)
    truncate = parameters.get("truncate", True)
    if not isinstance(truncate, bool):
        raise UnsupportedModel(
            f"rope parameter truncate is {shown(truncate)}, not true or false",
            hint="repair the configuration",
        )

    def pair_of(turns: float) -> float:
        return rotated * math.log(length / (turns * 2.0 * math.pi)) / (2.0 * math.log(theta))

    # 0 stands for the default, as in the published rule.
    low = pair_of(_positive_or(parameters, "beta_fast", 32.0))
    high = pair_of(_positive_or(parameters, "beta_slow", 1.0))
    if truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, rotated - 1.0)
    if low == high:
        high += 0.001  # the line would be vertical
    blended = []
    for pair, frequency in enumerate(frequencies):
        share = min(max((pair - low) / (high - low), 0.0), 1.0)
        blended.append(frequency * (1.0 - share) + frequency / factor * share)
    return blended


def _yarn_scale(parameters: Mapping[str, Any]) -> float:
    """The factor of cosines and sines: given, or from the stretching."""
    if "attention_factor" in parameters:
        return _positive(parameters, "attention_factor", 1.0)
    factor = _yarn_factor(parameters)
    own, others = _weight(parameters, "mscale"), _weight(parameters, "mscale_all_dim")
    if own and others:
        return _magnitude(factor, own) / _magnitude(factor, others)
    return _magnitude(factor, 1.0)


def _yarn_factor(parameters: Mapping[str, Any]) -> float:
    if "factor" not in parameters:
        rule = shown(parameters.get("rope_type"))
        raise UnsupportedModel(
            f"rope parameter factor is missing; rope_type {rule} needs it",
            hint="repair the configuration",
        )
    return _positive(parameters, "factor", 1.0)


def _weight(parameters: Mapping[str, Any], key: str) -> float:
    """A number of 0 or more; absent means 0."""
    return _positive(parameters, key, 0.0) if parameters.get(key) else 0.0


def _positive_or(parameters: Mapping[str, Any], key: str, default: float) -> float:
    return _positive(parameters, key, default) if parameters.get(key) else default


def _magnitude(factor: float, weight: float) -> float:
    """m(s, c) = 0.1 c ln s + 1: how much sharper attention must be over a stretched context."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0
