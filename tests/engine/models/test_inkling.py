"""Inkling: the mistakes its oracle must notice, and its configurations in both spellings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from colibri_engine import kernels
from colibri_engine.kernels import AttentionOptions
from colibri_engine.layers import mixture, relative_attention
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from tests.engine.models.conftest import forward_in_chunks
from tests.fakes.altered_checkpoint import AlteredCheckpoint, in_halves
from tests.fakes.oracle_models import Oracle, build

if TYPE_CHECKING:
    from colibri_engine.kernels import Choices, Router, Rows
    from colibri_engine.loader.base import Checkpoint

pytestmark = pytest.mark.oracle

NOTICED = 1e-2  # a hundred times what the oracle allows

Floats = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build("inkling", tmp_path_factory.mktemp("inkling"))


def difference(checkpoint: AlteredCheckpoint, oracle: Oracle) -> float:
    model = load_model(checkpoint, numerics="float")  # type: ignore[arg-type]
    logits = forward_in_chunks(model, oracle.ids, len(oracle.ids))
    assert np.isfinite(logits).all()
    return float(np.abs(logits - oracle.logits).max())


# ---- mistakes in reading ------------------------------------------------------------------------


def changed(
    part: str, change: Callable[[Floats], Floats]
) -> Callable[[Checkpoint, str], Floats | None]:
    def alter(checkpoint: Checkpoint, name: str) -> Floats | None:
        return change(checkpoint.array(name)) if part in name else None

    return alter


def without_input(weights: Floats) -> Floats:
    """Return the weights of a convolution that does not add its own input."""
    shifted = weights.copy()
    shifted[..., -1] -= 1
    return shifted


ALTERED: dict[str, tuple[Callable[[Checkpoint, str], Floats | None] | None, dict[str, Any]]] = {
    "gate and up in halves": (in_halves, {}),
    "taps in the other order": (changed("sconv", lambda w: w[..., ::-1]), {}),
    "convolutions without their input": (changed("sconv", without_input), {}),
    "profiles from far to near": (changed("rel_logits_proj", lambda w: w[:, ::-1]), {}),
    "no bias by distance": (changed("r_proj", np.zeros_like), {}),
    "no correction of the choice": (changed("e_score_correction", np.zeros_like), {}),
    "no scale of the mixtures": (changed("gate.global_scale", np.ones_like), {}),
    "no scale of the dense layers": (changed("mlp.global_scale", np.ones_like), {}),
    "queries that do not grow": (None, {"log_scaling_n_floor": None}),
    "queries that grow elsewhere": (None, {"log_scaling_n_floor": 16}),
    "another divisor": (None, {"logits_mup_width_multiplier": 3.0}),
    "another route scale": (None, {"route_scale": 1.0}),
}


@pytest.mark.parametrize("mistake", ALTERED)
def test_the_oracle_notices(oracle: Oracle, mistake: str) -> None:
    alter, config = ALTERED[mistake]
    with closing(open_checkpoint(oracle.path)) as checkpoint:
        altered = AlteredCheckpoint(checkpoint, alter, config)
        assert difference(altered, oracle) > NOTICED
        assert alter is None or altered.num_altered > 0


# ---- mistakes in code ---------------------------------------------------------------------------


def root_scale(*arguments: Any) -> None:  # noqa: ANN401 - the kernel's own
    """Attend with 1 / sqrt(d) in place of 1 / d."""
    qkv, batch, layer, num_heads, scale, out, options = arguments
    kernels.attention(qkv, batch, layer, num_heads, scale**0.5, out, options)


def wider_window(**rules: Any) -> AttentionOptions:  # noqa: ANN401
    return AttentionOptions(**{**rules, "window": rules["window"] and rules["window"] + 1})


def shared_with_weight_one(logits: Rows, router: Router, choices: Choices) -> None:
    kernels.route(logits, router, choices)
    choices.weights[:, -2:] = 1


def shared_left_out_of_the_sum(logits: Rows, router: Router, choices: Choices) -> None:
    kernels.route(logits, router, choices)
    total = choices.weights.sum(axis=1, keepdims=True)
    choices.weights[:] *= total / choices.weights[:, :-2].sum(axis=1, keepdims=True)


CODE: dict[str, tuple[object, str, Callable[..., object]]] = {
    "1 / sqrt(d) in place of 1 / d": (relative_attention, "attention", root_scale),
    "a window of one more": (relative_attention, "AttentionOptions", wider_window),
    "shared experts with weight 1": (mixture, "route", shared_with_weight_one),
    "a sum without the shared": (mixture, "route", shared_left_out_of_the_sum),
}


@pytest.mark.parametrize("mistake", CODE)
def test_the_oracle_notices_other_code(
    oracle: Oracle, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, replacement = CODE[mistake]
    monkeypatch.setattr(module, name, replacement)
    with closing(open_checkpoint(oracle.path)) as checkpoint:
        assert difference(AlteredCheckpoint(checkpoint), oracle) > NOTICED


# ---- what is left out ---------------------------------------------------------------------------


def test_tensors_that_are_left_out_are_counted_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    whole = build("inkling-as-published", tmp_path_factory.mktemp("published"))
    caplog.set_level(logging.INFO, "colibri_engine")
    with closing(open_checkpoint(whole.path)) as checkpoint:
        load_model(checkpoint, numerics="float")
    assert "tensors of the vision tower are not used" in caplog.text
    assert "2 tensors of the audio tower are not used" in caplog.text
