"""Text completions: requests, and answers to the byte, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.gateway.dialects import openai_completions
from colibri_cli.gateway.dialects.base import ParsedRequest, Served
from colibri_cli.gateway.dialects.openai_sampling import OpenAIRender
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.turns import Finish, ReasoningPiece, TextPiece, TurnEvent, TurnProgress
from tests.gateway.dialects.openai_rig import (
    ABLE,
    BASELINE,
    accepted,
    completed,
    logprob,
    objects,
    streamed,
    text_turn,
    whole,
)

ENVELOPE = {
    "id": "chatcmpl-0",
    "object": "text_completion",
    "created": 1,
    "model": "test-model",
}


def complete(served: Served = ABLE, /, **fields: object) -> ParsedRequest[OpenAIRender]:
    return openai_completions.parse_request({"prompt": "Complete me", **fields}, served, {})


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {**ENVELOPE, "choices": [choice]}


def test_the_prompt_is_taken_as_it_is() -> None:
    turn = complete(prompt="<|user|> as it is ").turn
    assert turn.prompt == "<|user|> as it is "
    assert turn.conversation is None


@pytest.mark.parametrize("prompt", ["", None, ["a"], [1, 2], 7, {}, "a\0b"])
def test_other_prompts_are_refused(prompt: object) -> None:
    with pytest.raises(HttpError) as caught:
        complete(prompt=prompt)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "prompt", None)


@pytest.mark.parametrize(
    ("field", "value"), [("best_of", 2), ("echo", True), ("suffix", "x"), ("echo", 0)]
)
def test_features_that_do_not_exist_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(HttpError) as caught:
        complete(**{field: value})
    assert (caught.value.param, caught.value.code) == (field, "unsupported_parameter")


def test_their_defaults_pass() -> None:
    complete(best_of=1, echo=False, suffix=None)


@pytest.mark.parametrize("value", [0, 3, True])
def test_an_engine_of_the_baseline_has_no_log_probabilities(value: object) -> None:
    with pytest.raises(HttpError) as caught:
        complete(BASELINE, logprobs=value)
    assert (caught.value.param, caught.value.code) == ("logprobs", "unsupported_parameter")
    assert complete(BASELINE, logprobs=None).turn.generation.options.logprobs is None


def test_log_probabilities_are_counted_from_zero() -> None:
    assert complete(logprobs=0).turn.generation.options.logprobs == 0
    assert complete(logprobs=3).turn.generation.options.logprobs == 3
    for wrong in (True, 21, -1, 1.5):
        with pytest.raises(HttpError) as caught:
            complete(logprobs=wrong)
        assert caught.value.param == "logprobs"


def test_a_whole_answer() -> None:
    body = whole(openai_completions, complete(), text_turn(Finish.LENGTH))
    usage = body.pop("usage")
    assert body == chunk("Héllo", "length")
    assert usage["total_tokens"] == 9


def test_a_streamed_answer() -> None:
    assert streamed(openai_completions, complete(stream=True), text_turn()) == [
        chunk("Hé"),
        chunk("llo"),
        chunk("", "stop"),
        "[DONE]",
    ]


def test_usage_in_a_stream() -> None:
    parsed = complete(stream=True, stream_options={"include_usage": True})
    *earlier, last, _ = streamed(openai_completions, parsed, text_turn())
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2
    assert all(one["usage"] is None for one in earlier)


def test_reasoning_has_no_place() -> None:
    events: list[TurnEvent] = [accepted(), ReasoningPiece("why"), TextPiece("a"), completed()]
    assert whole(openai_completions, complete(), events)["choices"][0]["text"] == "a"
    chunks = streamed(openai_completions, complete(stream=True), events)
    assert [one["choices"][0]["text"] for one in chunks[:-1]] == ["a", ""]


def test_log_probabilities_in_both_modes() -> None:
    events: list[TurnEvent] = [
        accepted(),
        TextPiece("Hé", logprobs=(logprob("Hé", -0.5, ("Hé", -0.5), ("Ho", -1.5)),)),
        TextPiece("llo", logprobs=(logprob("l", -1.0, ("l", -1.0)), logprob("lo", -2.0))),
        completed(),
    ]
    body = whole(openai_completions, complete(logprobs=2), events)
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["Hé", "l", "lo"],
        "token_logprobs": [-0.5, -1.0, -2.0],
        "top_logprobs": [{"Hé": -0.5, "Ho": -1.5}, {"l": -1.0}, {}],
        "text_offset": [0, 2, 3],
    }
    chunks = streamed(openai_completions, complete(stream=True, logprobs=2), events)
    parts = [one["choices"][0]["logprobs"] for one in chunks[:2]]
    assert [part["text_offset"] for part in parts] == [[0], [2, 3]]
    none = whole(openai_completions, complete(logprobs=0), events)["choices"][0]["logprobs"]
    assert none["top_logprobs"] is None


def test_before_any_text_there_are_only_comments() -> None:
    renderer = openai_completions.open_stream(complete(stream=True))
    frames = [*renderer.begin(), *renderer.feed(TurnProgress(1, 2))]
    assert all(frame.startswith(b":") and frame.endswith(b"\n\n") for frame in frames)
    assert frames


def test_a_sign_of_life_has_the_shape_of_this_endpoint() -> None:
    renderer = openai_completions.open_stream(complete(stream=True))
    (one,) = objects(renderer.keepalive())
    assert one["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": None}]


def test_a_failure_in_mid_stream_is_an_error_object() -> None:
    renderer = openai_completions.open_stream(complete(stream=True))
    (one,) = objects(renderer.fail(HttpError(503, "gone")))
    assert one["error"]["message"] == "gone"
