"""The layer that guesses the token after the next follows its formula, in any chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch
from colibri_engine.models.base import DraftStep
from colibri_engine.models.glm_moe_dsa import Model
from colibri_engine.models.registry import load_model
from tests.engine.models.conftest import forward_in_chunks
from tests.engine.models.latent_reference import SparseLayer, rms
from tests.fakes.memory_checkpoint import MemoryCheckpoint, memory_model

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = 30  # well beyond the 8 positions a row may look at
MAX_DIFFERENCE = 1e-4


def load(checkpoint: MemoryCheckpoint) -> Model:
    model = load_model(checkpoint, numerics="float")  # type: ignore[arg-type]
    assert isinstance(model, Model)
    return model


@pytest.fixture(scope="module")
def checkpoint() -> MemoryCheckpoint:
    return memory_model("glm_moe_dsa", index_share_for_mtp_iteration=True)


@pytest.fixture(scope="module")
def model(checkpoint: MemoryCheckpoint) -> Model:
    return load(checkpoint)


@pytest.fixture(scope="module")
def start(model: Model) -> DraftStep:
    """Any hidden states and any next tokens: the layer does not ask where they come from."""
    rng = np.random.default_rng(3)
    ids = rng.integers(0, model.config.vocab_size, LENGTH).astype(np.int32)
    hidden = rng.standard_normal((LENGTH, model.config.attention.hidden_size))
    return DraftStep(ids, hidden.astype(np.float32))


def draft_in_chunks(model: Model, start: DraftStep, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and hidden states of a sequence fed `chunk` rows at a time."""
    cache, batch = model.make_draft_cache(), Batch()
    logits, hidden = [], []
    for begin in range(0, LENGTH, chunk):
        part = DraftStep(start.ids[begin : begin + chunk], start.hidden[begin : begin + chunk])
        batch.set([(cache, begin, len(part.ids))])
        guess = model.draft(part, batch, list(range(len(part.ids))))
        logits.append(guess.logits.copy())
        hidden.append(guess.hidden)
    assert cache.length == LENGTH
    return np.concatenate(logits), np.concatenate(hidden)


def test_it_follows_its_formula(
    checkpoint: MemoryCheckpoint, model: Model, start: DraftStep
) -> None:
    weights, config = checkpoint.weights(), checkpoint.config
    prefix = f"model.layers.{config['num_hidden_layers']}"
    eps = config["rms_norm_eps"]
    embedded = rms(
        weights["model.embed_tokens.weight"][start.ids].astype(np.float64),
        weights[f"{prefix}.enorm.weight"],
        eps,
    )
    before = rms(start.hidden.astype(np.float64), weights[f"{prefix}.hnorm.weight"], eps)
    joined = np.concatenate([embedded, before], axis=1)
    x = joined @ weights[f"{prefix}.eh_proj.weight"].astype(np.float64).T
    want = SparseLayer(config, weights, prefix)(x)
    head = weights["lm_head.weight"].astype(np.float64)
    want_logits = rms(want, weights[f"{prefix}.shared_head.norm.weight"], eps) @ head.T
    logits, hidden = draft_in_chunks(model, start, LENGTH)
    assert np.abs(hidden - want).max() <= MAX_DIFFERENCE
    assert np.abs(logits - want_logits).max() <= MAX_DIFFERENCE


@pytest.mark.parametrize("chunk", [1, 7])
def test_chunks_change_no_bit(model: Model, start: DraftStep, chunk: int) -> None:
    whole = draft_in_chunks(model, start, LENGTH)
    for want, got in zip(whole, draft_in_chunks(model, start, chunk), strict=True):
        np.testing.assert_array_equal(got, want)


def test_drafting_leaves_the_model_as_it_was(model: Model, start: DraftStep) -> None:
    alone = forward_in_chunks(model, start.ids, 7)
    cache, batch = model.make_cache(), Batch()
    rows = []
    for begin in range(0, LENGTH, 7):
        part = start.ids[begin : begin + 7]
        batch.set([(cache, begin, len(part))])
        rows.append(model.forward(part, batch, list(range(len(part)))).copy())
        draft_in_chunks(model, start, LENGTH)
    np.testing.assert_array_equal(np.concatenate(rows), alone)


def test_the_final_hidden_state_is_what_the_head_reads(
    checkpoint: MemoryCheckpoint, model: Model, start: DraftStep
) -> None:
    batch = Batch()
    batch.set([(model.make_cache(), 0, LENGTH)])
    logits = model.forward(start.ids, batch, [3, LENGTH - 1])
    hidden = model.final_hidden([3, LENGTH - 1])
    head = checkpoint.weights()["lm_head.weight"]
    np.testing.assert_allclose(hidden @ head.T, logits, atol=1e-5)


# ---- a guess after a guess ----------------------------------------------------------------------


def guess_after_guess(model: Model, start: DraftStep, *, follows: bool) -> np.ndarray:
    """Return the logits of one row that goes on from the last guess."""
    cache, batch = model.make_draft_cache(), Batch()
    batch.set([(cache, 0, LENGTH)])
    first = model.draft(start, batch, [LENGTH - 1])
    batch.set([(cache, LENGTH, 1)])
    step = DraftStep(np.array([5], np.int32), first.hidden[-1:], follows_draft=follows)
    return model.draft(step, batch, [0]).logits.copy()


def test_a_guess_after_a_guess_looks_where_the_first_did(model: Model, start: DraftStep) -> None:
    again = guess_after_guess(model, start, follows=False)
    followed = guess_after_guess(model, start, follows=True)
    assert np.abs(again - followed).max() > 0.01  # it does not choose for itself
    np.testing.assert_array_equal(guess_after_guess(model, start, follows=True), followed)


def test_every_guess_chooses_where_the_configuration_says_so(start: DraftStep) -> None:
    model = load(memory_model("glm_moe_dsa", index_share_for_mtp_iteration=False))
    again = guess_after_guess(model, start, follows=False)
    np.testing.assert_array_equal(guess_after_guess(model, start, follows=True), again)


def test_where_nothing_was_chosen_a_guess_after_it_looks_everywhere(model: Model) -> None:
    cache, batch = model.make_draft_cache(), Batch()
    hidden = np.ones((8, model.config.attention.hidden_size), np.float32)
    batch.set([(cache, 0, 8)])
    model.draft(DraftStep(np.arange(8, dtype=np.int32), hidden), batch, [7])
    batch.set([(cache, 8, 1)])  # the ninth position: the first that has to choose
    step = DraftStep(np.array([1], np.int32), hidden[:1], follows_draft=True)
    assert np.isfinite(model.draft(step, batch, [0]).logits).all()


# ---- checkpoints without it ---------------------------------------------------------------------


def without_draft_layer(checkpoint: MemoryCheckpoint) -> MemoryCheckpoint:
    prefix = f"model.layers.{checkpoint.config['num_hidden_layers']}."
    kept = {n: t for n, t in checkpoint.tensors.items() if not n.startswith(prefix)}
    return MemoryCheckpoint(checkpoint.config, kept)


def without_last_expert(checkpoint: MemoryCheckpoint) -> MemoryCheckpoint:
    layer, last = (checkpoint.config[k] for k in ("num_hidden_layers", "n_routed_experts"))
    name = f"model.layers.{layer}.mlp.experts.{last - 1}."
    kept = {n: t for n, t in checkpoint.tensors.items() if not n.startswith(name)}
    return MemoryCheckpoint(checkpoint.config, kept)


def with_other_setting(checkpoint: MemoryCheckpoint) -> MemoryCheckpoint:
    config = {**checkpoint.config, "num_nextn_predict_layers": 0}
    return MemoryCheckpoint(config, checkpoint.tensors)


@pytest.mark.parametrize("change", [without_draft_layer, without_last_expert, with_other_setting])
def test_without_all_of_it_the_model_works_and_does_not_draft(
    checkpoint: MemoryCheckpoint,
    model: Model,
    start: DraftStep,
    change: Callable[[MemoryCheckpoint], MemoryCheckpoint],
) -> None:
    plain = load(change(checkpoint))
    assert model.can_draft
    assert not plain.can_draft
    np.testing.assert_array_equal(
        forward_in_chunks(plain, start.ids, 9), forward_in_chunks(model, start.ids, 9)
    )
    with pytest.raises(UnsupportedModel, match="no draft layer"):
        plain.make_draft_cache()
