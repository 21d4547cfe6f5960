"""The engine on a model with recurrent state: what is reused, and that reuse changes no token.

The state of a conversation is known where a prompt or a reply ended, and where the last chunk of a
prompt began; everything after the nearest such place is computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.model_rig import GREEDY, SAMPLED, Ids, prompt_of, start, submit, tokens
from tests.fakes.tiny_variants import write_variant

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.engine import Engine


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_variant(tmp_path_factory.mktemp("models") / "tiny", "inkling")


def fresh(path: Path, prompt: Ids, **options: Any) -> Ids:  # noqa: ANN401
    return tokens(start(path), 1, prompt, 0, **options)[0]


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_the_size_of_chunks_changes_no_token(
    model_path: Path, chunk: int, options: dict[str, Any]
) -> None:
    prompt = prompt_of(70)
    found, _ = tokens(start(model_path, prefill_chunk=chunk), 1, prompt, **options)
    assert found == fresh(model_path, prompt, **options)


def test_the_number_of_threads_changes_no_token(model_path: Path) -> None:
    prompt = prompt_of(70)
    one, _ = tokens(start(model_path, num_threads=1), 1, prompt, **SAMPLED)
    assert one == fresh(model_path, prompt, **SAMPLED)


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
def test_a_second_turn_reuses_the_whole_first(model_path: Path, options: dict[str, Any]) -> None:
    engine = start(model_path)
    prompt = prompt_of(60)
    reply, _ = tokens(engine, 1, prompt, **options)
    for request_id in (2, 3, 4):
        fed = len(prompt) + len(reply) - 1  # the last token of a reply has no row
        prompt = prompt + reply + prompt_of(9, seed=request_id)
        reply, done = tokens(engine, request_id, prompt, **options)
        assert done.reused_tokens == fed
        assert reply == fresh(model_path, prompt, **options)


def test_a_turn_that_drops_the_reply_goes_back_to_the_end_of_the_prompt(model_path: Path) -> None:
    """As when reasoning is left out of the history."""
    engine = start(model_path)
    opening = prompt_of(60)
    reply, _ = tokens(engine, 1, opening, **GREEDY)
    prompt = opening + reply[:5] + prompt_of(20, seed=3)
    found, done = tokens(engine, 2, prompt, **GREEDY)
    assert done.reused_tokens == 60
    assert found == fresh(model_path, prompt, **GREEDY)


def test_the_same_prompt_again_computes_its_last_chunk(model_path: Path) -> None:
    engine = start(model_path, prefill_chunk=16)
    prompt = prompt_of(70)
    first, _ = tokens(engine, 1, prompt, **GREEDY)
    again, done = tokens(engine, 2, prompt, **GREEDY)
    assert done.reused_tokens == 64
    assert again == first == fresh(model_path, prompt, **GREEDY)


def test_an_edited_opening_is_computed_again(model_path: Path) -> None:
    engine = start(model_path)
    prompt = prompt_of(60)
    tokens(engine, 1, prompt, **GREEDY)
    edited = [*prompt[:40], *prompt_of(20, seed=8)]
    found, done = tokens(engine, 2, edited, 0, **GREEDY)
    assert done.reused_tokens == 0
    assert found == fresh(model_path, edited, **GREEDY)


def test_a_conversation_is_copied_where_its_state_is_known(model_path: Path) -> None:
    engine = start(model_path, num_slots=2)
    opening = prompt_of(300)  # more than one block of the cache
    reply, _ = tokens(engine, 1, opening, 0, **GREEDY)
    branch = opening + prompt_of(20, seed=5)
    found, done = tokens(engine, 2, branch, 1, **GREEDY)
    assert done.reused_tokens == 300
    assert found == fresh(model_path, branch, **GREEDY)
    prompt = [*opening, *reply, 9]
    again, done = tokens(engine, 3, prompt, 0, **GREEDY)  # the donor is unharmed
    assert done.reused_tokens == 311
    assert again == fresh(model_path, prompt, **GREEDY)


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
def test_company_changes_no_token(model_path: Path, options: dict[str, Any]) -> None:
    prompt = prompt_of(40)
    engine = start(model_path, num_slots=4, prefill_chunk=9)
    for request_id, size in ((1, 3), (2, 150)):
        submit(engine, request_id, prompt_of(size, request_id), max_tokens=200, temperature=1.3)
    for _ in range(4):
        engine.step()
    found, _ = tokens(engine, 3, prompt, **options)
    assert found == fresh(model_path, prompt, **options)


def fed_rows(engine: Engine, request_id: int, steps: int, prompt: Ids) -> None:
    submit(engine, request_id, prompt, 0)
    for _ in range(steps):
        engine.step()


def test_a_cancelled_prompt_leaves_rows_that_are_good(model_path: Path) -> None:
    prompt = prompt_of(100)
    engine = start(model_path, prefill_chunk=16)
    fed_rows(engine, 1, 3, prompt)
    engine.cancel(1)
    found, done = tokens(engine, 2, prompt, 0, **GREEDY)
    assert done.reused_tokens == 48
    assert found == fresh(model_path, prompt, **GREEDY)
