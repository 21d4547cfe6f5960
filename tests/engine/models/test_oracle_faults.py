"""The comparison with the reference notices what is easily got wrong.

Each fault is put into a model that otherwise equals the reference, which must then differ clearly,
from the position on at which the fault begins to matter.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from colibri_engine import kernels
from colibri_engine.kernels import Choices, IndexHeads, LatentHeads, Router, Rows
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.quant.base import FloatTensor, StoredTensor
from tests.engine.models.conftest import forward_in_chunks
from tests.fakes.oracle_models import Oracle, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_engine.loader.base import Checkpoint

pytestmark = pytest.mark.oracle

MAX_LOGIT_DIFFERENCE = 1e-4
INDEX_TOPK, SHARED_LAYERS = 8, (2, 3, 5, 6)
INDEX_HEADS, INDEX_DIM, WEIGHTS_OFFSET = 16, 16, 32 + 8 + 16
KEY_DIM = 24


class Altered:
    """A checkpoint with other settings, or without a selection bias.

    Args:
        checkpoint: The one it stands for.
        settings: Keys of its configuration that are replaced.
        has_bias: Whether the bias that moves the choice of experts is there.
    """

    def __init__(
        self, checkpoint: Checkpoint, settings: dict[str, Any], *, has_bias: bool = True
    ) -> None:
        self._checkpoint = checkpoint
        self._has_bias = has_bias
        self.config = {**checkpoint.config, **settings}

    def __getattr__(self, name: str) -> object:
        return getattr(self._checkpoint, name)

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor, zero where it is a bias left out."""
        if name.endswith("e_score_correction_bias") and not self._has_bias:
            return FloatTensor(np.zeros(self._checkpoint.shape(name), np.float32))
        return self._checkpoint.tensor(name)


def differences(
    oracle: Oracle, settings: dict[str, Any] | None = None, *, has_bias: bool = True
) -> np.ndarray:
    """Return the largest difference of logits at each position."""
    with closing(open_checkpoint(oracle.path)) as checkpoint:
        altered = Altered(checkpoint, settings or {}, has_bias=has_bias)
        model = load_model(altered, numerics="float")  # type: ignore[arg-type]
    logits = forward_in_chunks(model, oracle.ids, 1000)
    largest: np.ndarray = np.abs(logits - oracle.logits).max(axis=1)
    return largest


# ---- faults that live in the code ---------------------------------------------------------------


def shared_layers_see_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernels.latent_attention

    def attend(*args: Any) -> None:  # noqa: ANN401 - the kernel's own
        absorbed, q, batch, layer, heads, selection = args
        kept = None if layer in SHARED_LAYERS else selection
        real(absorbed, q, batch, layer, heads, kept)

    monkeypatch.setattr("colibri_engine.layers.mla.latent_attention", attend)


def no_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put heads of the opposite sign beside the others: w relu(s) - w relu(-s) is w s."""
    real = kernels.index_select

    def doubled(x: Rows, columns: slice) -> Rows:
        part = x.array[:, columns]
        both = Rows(len(part), 2 * part.shape[1])
        both.rows = len(part)
        both.array[:] = np.concatenate([part, -part], axis=1)
        return both

    def select(q: Rows, weights: Rows, *args: Any) -> None:  # noqa: ANN401
        batch, layer, _, selection = args
        heads = IndexHeads(2 * INDEX_HEADS, 0, 1.0)
        w = doubled(weights, slice(WEIGHTS_OFFSET, WEIGHTS_OFFSET + INDEX_HEADS))
        real(doubled(q, slice(None)), w, batch, layer, heads, selection)

    monkeypatch.setattr("colibri_engine.layers.indexer.index_select", select)


def weights_from_biased_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernels.route
    biases: dict[int, np.ndarray] = {}

    def make_router(*args: Any, **kwargs: Any) -> Router:  # noqa: ANN401
        router = Router(*args, **kwargs)
        biases[id(router)] = kwargs["bias"]
        return router

    def route(logits: Rows, router: Router, out: Choices) -> None:
        real(logits, router, out)
        scores = 1 / (1 + np.exp(-logits.array)) + biases[id(router)]
        chosen = np.take_along_axis(scores, out.ids.astype(np.int64), axis=1)
        out.weights[:] = 2.5 * chosen / chosen.sum(axis=1, keepdims=True)

    monkeypatch.setattr("colibri_engine.layers.noaux.Router", make_router)
    monkeypatch.setattr("colibri_engine.layers.mixture.route", route)


def scale_of_the_part_that_does_not_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "colibri_engine.layers.mla.LatentHeads",
        lambda num_heads, _: LatentHeads(num_heads, KEY_DIM**-0.5),
    )


# ---- the comparison -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What is wrong, how much it must show, and from where.

    Args:
        least: The least largest difference.
        first: The first position that differs.
        settings: Configuration keys that are wrong.
        patch: What is wrong in the code.
        has_bias: Whether the selection bias is there.
    """

    least: float
    first: int
    settings: dict[str, Any] | None = None
    patch: Callable[[pytest.MonkeyPatch], None] | None = None
    has_bias: bool = True


FAULTS = {
    "half-split rotation in the indexer": Fault(
        1.0, INDEX_TOPK, settings={"indexer_rope_interleave": False}
    ),
    "half-split rotation in the attention": Fault(1.0, 1, settings={"rope_interleave": False}),
    "shared layers attend to everything": Fault(
        1.0, INDEX_TOPK, patch=shared_layers_see_everything
    ),
    "no relu in the indexer": Fault(1.0, INDEX_TOPK, patch=no_relu),
    "expert weights from biased scores": Fault(0.5, 0, patch=weights_from_biased_scores),
    "no bias in the choice of experts": Fault(1.0, 0, has_bias=False),
    "no scaling of expert weights": Fault(1.0, 0, settings={"routed_scaling_factor": 1.0}),
    "score scale without the rotated width": Fault(
        1.0, 1, patch=scale_of_the_part_that_does_not_turn
    ),
}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build("glm_moe_dsa", tmp_path_factory.mktemp("glm_moe_dsa"))


@pytest.fixture(scope="module")
def small_latents(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    name = "glm_moe_dsa-small-latents"
    return build(name, tmp_path_factory.mktemp(name))


def test_without_a_fault_there_is_no_difference(oracle: Oracle, small_latents: Oracle) -> None:
    assert differences(oracle).max() <= MAX_LOGIT_DIFFERENCE
    assert differences(small_latents).max() <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows(monkeypatch: pytest.MonkeyPatch, oracle: Oracle, name: str) -> None:
    fault = FAULTS[name]
    if fault.patch is not None:
        fault.patch(monkeypatch)
    found = differences(oracle, fault.settings, has_bias=fault.has_bias)
    assert found.max() >= fault.least
    assert found[: fault.first].max(initial=0.0) <= MAX_LOGIT_DIFFERENCE
    assert (found > MAX_LOGIT_DIFFERENCE).argmax() <= fault.first + 2


@pytest.mark.parametrize(
    "constant",
    ["colibri_engine.layers.mla.LATENT_NORM_EPS", "colibri_engine.layers.indexer.KEY_NORM_EPS"],
)
def test_another_epsilon_shows_where_latents_are_small(
    monkeypatch: pytest.MonkeyPatch, small_latents: Oracle, constant: str
) -> None:
    monkeypatch.setattr(constant, 1e-5)
    assert differences(small_latents).max() >= 0.1
