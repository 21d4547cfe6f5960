"""gpt_oss: MXFP4 checkpoints, and the mistakes that its oracle must notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from colibri_engine.kernels import Router
from colibri_engine.layers.rope import build_rope
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models import gpt_oss
from colibri_engine.models.registry import load_model
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.altered_checkpoint import AlteredCheckpoint, in_halves
from tests.fakes.oracle_models import CONFIGS, Oracle, build
from tests.fakes.oracle_mxfp4 import build_gpt_oss_mxfp4

if TYPE_CHECKING:
    from colibri_engine.loader.base import Checkpoint

pytestmark = pytest.mark.oracle

MAX_LOGIT_DIFFERENCE = 1e-4
NOTICED = 1e-2  # a hundred times what the oracle allows

Floats = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build("gpt_oss", tmp_path_factory.mktemp("gpt_oss"))


@pytest.fixture(scope="module")
def mxfp4(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build_gpt_oss_mxfp4(tmp_path_factory.mktemp("mxfp4"))


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_mxfp4_experts_equal_the_reference_on_their_values(mxfp4: Oracle, chunk: int) -> None:
    model = load(mxfp4.path, "float")
    logits = forward_in_chunks(model, mxfp4.ids, chunk)
    assert np.abs(logits - mxfp4.logits).max() <= MAX_LOGIT_DIFFERENCE


def test_mxfp4_experts_are_held_as_integers(mxfp4: Oracle, oracle: Oracle) -> None:
    assert load(mxfp4.path, "float").expert_bytes < load(oracle.path, "float").expert_bytes / 2


# ---- mistakes -----------------------------------------------------------------------------------


def without_sinks(checkpoint: Checkpoint, name: str) -> Floats | None:
    if not name.endswith(".sinks"):
        return None
    return np.full(checkpoint.shape(name), -1e30, np.float32)


def without_one_on_up(checkpoint: Checkpoint, name: str) -> Floats | None:
    return checkpoint.array(name) - 1 if name.endswith(".up_proj.bias") else None


def without_down_bias(checkpoint: Checkpoint, name: str) -> Floats | None:
    return np.zeros_like(checkpoint.array(name)) if name.endswith(".down_proj.bias") else None


ROPE = CONFIGS["gpt_oss"][1]["rope_parameters"]
ALTERED: dict[str, tuple[Callable[[Checkpoint, str], Floats | None] | None, dict[str, Any]]] = {
    "no sinks": (without_sinks, {}),
    "u in place of u + 1": (without_one_on_up, {}),
    "gate and up in halves": (in_halves, {}),
    "no bias on down": (without_down_bias, {}),
    "no YaRN factor on cosines": (None, {"rope_parameters": {**ROPE, "attention_factor": 1.0}}),
    "YaRN bounds rounded": (None, {"rope_parameters": {**ROPE, "truncate": True}}),
    "a window of one more": (None, {"sliding_window": 9}),
    "a window of one less": (None, {"sliding_window": 7}),
    "windows on the odd layers": (
        None,
        {"layer_types": ["full_attention", "sliding_attention"] * 2},
    ),
    "no clamp on the gate": (None, {"swiglu_limit": 1e6}),
    "another gain": (None, {"swiglu_alpha": 1.0}),
}


def difference(checkpoint: AlteredCheckpoint, oracle: Oracle) -> float:
    model = load_model(checkpoint, numerics="float")  # type: ignore[arg-type]
    logits = forward_in_chunks(model, oracle.ids, len(oracle.ids))
    assert np.isfinite(logits).all()
    return float(np.abs(logits - oracle.logits).max())


@pytest.mark.parametrize("mistake", ALTERED)
def test_the_oracle_notices(oracle: Oracle, mistake: str) -> None:
    alter, config = ALTERED[mistake]
    with closing(open_checkpoint(oracle.path)) as checkpoint:
        altered = AlteredCheckpoint(checkpoint, alter, config)
        assert difference(altered, oracle) > NOTICED
        assert alter is None or altered.num_altered > 0


def softmax_router(*args: Any, **rules: Any) -> Router:  # noqa: ANN401 - Router's own
    return Router(*args, **{**rules, "scoring": "softmax"})


CODE: dict[str, tuple[str, Callable[..., object]]] = {
    "a softmax over all experts": ("Router", softmax_router),
    "neighbours rotate": ("build_rope", partial(build_rope, interleaved=True)),
}


@pytest.mark.parametrize("mistake", CODE)
def test_the_oracle_notices_other_code(
    oracle: Oracle, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, replacement = CODE[mistake]
    monkeypatch.setattr(gpt_oss, name, replacement)
    with closing(open_checkpoint(oracle.path)) as checkpoint:
        assert difference(AlteredCheckpoint(checkpoint), oracle) > NOTICED
