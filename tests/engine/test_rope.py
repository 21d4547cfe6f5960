"""Rotary frequencies follow every supported rule and refuse the rest by name."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch, KvCache, LayerLayout, Rows, rope_store
from colibri_engine.layers.rope import build_rope, check_rotation, rotary_table, yarn_score_scale

HEAD_DIM = 16


def rotated_ones(config: dict[str, object], position: int) -> np.ndarray:
    """Return a (HEAD_DIM,) query at a position, whose pairs were (1, 0) before."""
    rope = build_rope(config, HEAD_DIM, default_theta=10_000.0)
    cache, batch = KvCache([LayerLayout(num_kv_heads=1, head_dim=HEAD_DIM)]), Batch()
    qkv = Rows(position + 1, 3 * HEAD_DIM)
    qkv.rows = position + 1
    qkv.array[:] = 0.0
    qkv.array[:, : HEAD_DIM // 2] = 1.0
    batch.set([(cache, 0, position + 1)])
    rope_store(qkv, batch, 0, rope, 1)
    return qkv.array[position, :HEAD_DIM].copy()


def angles(config: dict[str, object], position: int) -> np.ndarray:
    """Return the (HEAD_DIM / 2,) angles at a position, read back from rotated unit vectors."""
    query = rotated_ones(config, position)
    found: np.ndarray = np.arctan2(query[HEAD_DIM // 2 :], query[: HEAD_DIM // 2])
    return found


def expected(frequencies: np.ndarray, position: int) -> np.ndarray:
    turned = frequencies * position
    wrapped: np.ndarray = np.arctan2(np.sin(turned), np.cos(turned))
    return wrapped


PLAIN = 10_000.0 ** (-2.0 * np.arange(HEAD_DIM // 2) / HEAD_DIM)


@pytest.mark.parametrize(
    ("config", "frequencies"),
    [
        ({}, PLAIN),
        ({"rope_theta": 500.0}, 500.0 ** (-2.0 * np.arange(8) / HEAD_DIM)),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, PLAIN / 4.0),
        (
            {"rope_parameters": {"rope_type": "frequency_factors",
                                 "frequency_factors": [1.0, 2, 3, 4, 5, 6, 7, 8]}},
            PLAIN / np.arange(1, 9),
        ),
    ],
    ids=["default", "theta", "linear", "factors"],
)  # fmt: skip
def test_angles_follow_the_rule(config: dict[str, object], frequencies: np.ndarray) -> None:
    np.testing.assert_allclose(angles(config, 37), expected(frequencies, 37), atol=2e-6)


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "longrope"},
        {"rope_type": "yarn"},
        {"rope_type": "yarn", "factor": 0.0},
        {"rope_type": "yarn", "factor": 4.0, "beta_slow": -1.0},
        {"rope_type": "yarn", "factor": 4.0, "truncate": "no"},
        {"rope_type": "yarn", "factor": 4.0, "mscale": "x"},
        {"rope_type": "yarn", "factor": 4.0, "mscale_all_dim": float("inf")},
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1e300},
        {"rope_type": "llama3", "low_freq_factor": 0.0},
        {"rope_type": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 4.0},
        {"rope_type": "linear", "factor": 0.0},
        {"rope_type": "frequency_factors", "frequency_factors": [1.0]},
        {"rope_type": "frequency_factors", "frequency_factors": [0.0] * 8},
        {"rope_theta": "many"},
        {"rope_theta": float("nan")},
        {"partial_rotary_factor": 2.0},
    ],
)
def test_what_is_not_implemented_is_named(parameters: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        build_rope(
            {"rope_parameters": parameters, "max_position_embeddings": 64},
            HEAD_DIM,
            default_theta=10_000.0,
        )
    name = next(reversed(parameters))
    assert name in caught.value.message or str(parameters["rope_type"]) in caught.value.message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rope_parameters": 5}, "rope_parameters is 5, not an object"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn', not an object"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "for 'full_attention'"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type 'longrope'"),
        ({"rope_theta": 1}, "rope_theta 1.0"),
        (
            {"rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_type": "default"}},
            "rope_parameters says rope_type = 'default', rope_scaling 'yarn'",
        ),
        ({"rope_parameters": {"rope_type": "yarn", "factor": "x"}}, "factor"),
    ],
)
def test_what_no_model_can_follow_is_refused_with_the_configuration(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        check_rotation(settings)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("settings", [{}, {"rope_parameters": None, "rope_scaling": None}])
def test_no_rotary_settings_are_fine(settings: dict[str, object]) -> None:
    check_rotation(settings)


YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 40.0,
    "original_max_position_embeddings": 64,
}


def test_cosines_and_sines_carry_the_attention_factor() -> None:
    query = rotated_ones({"rope_parameters": {**YARN, "attention_factor": 1.25}}, 37)
    lengths = np.hypot(query[: HEAD_DIM // 2], query[HEAD_DIM // 2 :])
    np.testing.assert_allclose(lengths, 1.25, rtol=1e-6)


def test_yarn_keeps_fast_pairs_and_divides_slow_ones() -> None:
    table = rotary_table({"rope_scaling": YARN}, 64, default_theta=1.0)
    plain = 10_000.0 ** (-2.0 * np.arange(32) / 64)
    assert table.frequencies[0] == plain[0]
    np.testing.assert_allclose(table.frequencies[-1], plain[-1] / 40.0)
    inner = np.array(table.frequencies[1:-1])
    assert ((inner <= plain[1:-1]) & (inner >= plain[1:-1] / 40.0)).all()
    assert np.isclose(table.scale, 0.1 * np.log(40.0) + 1.0)


@pytest.mark.parametrize(
    ("parameters", "scale"),
    [
        ({}, 1.0),
        ({"factor": 40.0, "mscale_all_dim": 1.0}, 1.0),
        ({"rope_type": "linear", "factor": 40.0, "mscale_all_dim": 1.0}, 1.36888795**2),
        ({**YARN}, 1.0),
        ({**YARN, "mscale_all_dim": 0}, 1.0),
        ({**YARN, "mscale_all_dim": 1.0}, 1.36888795**2),
        ({**YARN, "mscale_all_dim": 1.0, "factor": 32.0}, 1.34657359**2),
        ({**YARN, "mscale_all_dim": 1.0, "factor": 1.0}, 1.0),
    ],
)
def test_latent_attention_sharpens_its_scores(parameters: dict[str, object], scale: float) -> None:
    assert abs(yarn_score_scale({"rope_scaling": parameters}) - scale) < 1e-7


@pytest.mark.oracle
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"truncate": False},
        {"beta_fast": 1.0, "beta_slow": 1.0},
        {"beta_fast": 0, "beta_slow": 0},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.707, "mscale_all_dim": 1.3},
        {"mscale": 0.707},
        {"mscale_all_dim": 1.3},
        {"mscale": 0.7, "mscale_all_dim": 0.5, "attention_factor": 1.5},
        {"attention_factor": None, "factor": 4.0},
        {"factor": 32.0, "rope_theta": 150_000.0, "original_max_position_embeddings": 4096},
        {"original_max_position_embeddings": None, "factor": 2.5},
        {"factor": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
def test_yarn_equals_the_reference(spelling: str, extra: dict[str, object]) -> None:
    pytest.importorskip("torch", reason="torch is not installed; run: scripts/setup oracle")
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; run: scripts/setup oracle"
    )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale

    parameters = {**YARN, **extra}
    if parameters["original_max_position_embeddings"] is None:
        del parameters["original_max_position_embeddings"]
    reference = transformers.DeepseekV3Config(
        qk_rope_head_dim=48, max_position_embeddings=512, rope_parameters=dict(parameters)
    )
    frequencies, scale = ROPE_INIT_FUNCTIONS["yarn"](reference)
    config: dict[str, object] = {"max_position_embeddings": 512}
    if spelling == "rope_scaling":  # the old files: "type", and the base beside the object
        parameters["type"] = parameters.pop("rope_type")
        config["rope_theta"] = parameters.pop("rope_theta")
    config[spelling] = parameters
    table = rotary_table(config, 48, default_theta=10_000.0)
    np.testing.assert_allclose(table.frequencies, frequencies.double().numpy(), rtol=3e-6)
    assert abs(table.scale - scale) < 1e-12
    score_scale = yarn_apply_mscale(reference.rope_parameters, 1.0)
    assert abs(yarn_score_scale(config) - score_scale) < 1e-12
