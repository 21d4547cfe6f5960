"""Rows kept in bf16: close to those in f32, and as independent of company and chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.engine.kv_files.resume_rig import FAMILIES, ask, write_model
from tests.engine.model_rig import prompt_of, start, submit, tokens

if TYPE_CHECKING:
    from pathlib import Path

# Of the spread of a row's logits. A rounded number is off by 2^-9 of itself at most; what many of
# them add to a logit is a few such parts of the spread, never more than one in fifty here. That is
# where attention chooses no positions: in so small a model another choice is another answer.
TOLERANCE = 0.02


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_near_those_of_rows_in_f32(family: str, tmp_path: Path) -> None:
    changes = {"index_topk": 512} if family == "glm_moe_dsa" else {}
    model = write_model(tmp_path / family, family, **changes)
    prompt = prompt_of(150)
    exact = ask(start(model), prompt, max_tokens=1).logits[-1]
    got = ask(start(model, kv_dtype="bf16"), prompt, max_tokens=1).logits[-1]
    assert not np.array_equal(got, exact)  # it did round
    assert np.abs(got - exact).max() <= TOLERANCE * exact.std()


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7}])
def test_chunks_and_company_change_no_token(model: Path, options: dict[str, Any]) -> None:
    prompt = prompt_of(100)
    alone = tokens(start(model, kv_dtype="bf16"), 1, prompt, **options)[0]
    engine = start(model, kv_dtype="bf16", num_slots=3, prefill_chunk=7)
    submit(engine, 2, prompt_of(40, seed=2), temperature=1.0, seed=3, max_tokens=60)
    submit(engine, 3, prompt_of(9, seed=5), temperature=0.0, max_tokens=60)
    assert tokens(engine, 1, prompt, **options)[0] == alone


def test_a_conversation_that_goes_on_is_one_that_was_told_at_once(model: Path) -> None:
    engine = start(model, kv_dtype="bf16")
    prompt = prompt_of(60)
    reply = ask(engine, prompt).ids
    longer = [*prompt, *reply, *prompt_of(8, seed=1)]
    turn = ask(engine, longer)
    assert turn.num_reused > 0
    assert turn.same_as(ask(start(model, kv_dtype="bf16"), longer))
