"""Turns on an engine that speaks the baseline lines only: all of the baseline works."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.turns import (
    Finish,
    ResponseFormat,
    ToolChoice,
    ToolDeclaration,
    ToolMode,
    TurnAccepted,
)
from colibri_cli.supervisor.client import EngineClient
from colibri_protocol.messages import RequestOptions, Submit
from tests.fakes.supervised import run_async
from tests.gateway.turn_rig import chat, end_of, events_of, reasoning_of, serving, text_of

if TYPE_CHECKING:
    from colibri_cli.supervisor.spawn import EngineLaunch
    from colibri_protocol.messages import GatewayMessage

WEATHER = ToolDeclaration("get_weather", {"type": "object"}, {"name": "get_weather"})


@pytest.fixture
def baseline(launch: EngineLaunch) -> EngineLaunch:
    """A GLM engine without extended forms."""
    (launch.model_path / "config.json").write_text('{"model_type": "glm_moe_dsa"}')
    return replace(launch, environment={"COLI_CAPS": "0"})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Submit]:
    """What the engine is asked for."""
    found: list[Submit] = []
    send = EngineClient._send

    def recording(self: EngineClient, message: GatewayMessage) -> None:
        if isinstance(message, Submit):
            found.append(message)
        send(self, message)

    monkeypatch.setattr(EngineClient, "_send", recording)
    return found


def test_prompt_and_figures_go_out_as_they_always_did(
    baseline: EngineLaunch, sent: list[Submit]
) -> None:
    async def body() -> None:
        async with serving(baseline, num_slots=2) as services:
            options = RequestOptions(max_tokens=16, temperature=0.7, top_p=0.9)
            events = await events_of(services, chat("Hi", options=options, cache_slot=1))
            assert sent[0].prompt == b"[gMASK]<sop><|user|>Hi<|assistant|><think></think>"
            assert (sent[0].slot, sent[0].max_tokens) == (1, 16)
            assert (sent[0].temperature, sent[0].top_p, sent[0].grammar) == (0.7, 0.9, None)
            assert isinstance(events[0], TurnAccepted)
            assert events[0].slot == 1

    run_async(body)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("<|user|>answer<|user|>ignored", "answer"),
        ("hi <|user|> more", "hi "),
        ("<|user|> <|observation|> text", " text"),
        ("<|x|> stays", "<|x|> stays"),
    ],
)
def test_role_marks_end_a_turn_but_not_before_its_first_word(
    launch: EngineLaunch, reply: str, shown: str
) -> None:
    model = {"family": "glm_moe_dsa", "chat_template": ""}

    async def body() -> None:
        async with serving(launch, model=model) as services:
            for turn in (chat(f"[[reply {reply}]]"), chat(f"[[reply {reply}]]", stop=("END",))):
                events = await events_of(services, turn)
                assert text_of(events) == shown
                assert end_of(events).finish is Finish.STOP

    run_async(body)


def test_conversations_are_kept_apart_by_us(baseline: EngineLaunch, sent: list[Submit]) -> None:
    async def body() -> None:
        async with serving(baseline, num_slots=2) as services:
            for text in ("A", "B", "A", "B", "A"):
                await events_of(services, chat(text))
            assert [submit.slot for submit in sent] == [0, 1, 0, 1, 0]
            one, two = await asyncio.gather(
                events_of(services, chat("[[pieces a|b]] [[slow 0.02]]")),
                events_of(services, chat("[[pieces x|y]] [[slow 0.02]]")),
            )
            assert (text_of(one), text_of(two)) == ("ab", "xy")
            assert {submit.slot for submit in sent[-2:]} == {0, 1}

    run_async(body)


def test_forms_are_drafts_only(baseline: EngineLaunch, sent: list[Submit]) -> None:
    async def body() -> None:
        async with serving(baseline) as services:
            for form, expected in (
                (ResponseFormat("json_object"), b"root ::="),
                (ResponseFormat("json_schema", '{"type":"integer"}'), b'{"type":"integer"}'),
                (ResponseFormat("gbnf", "no grammar at all"), b"no grammar at all"),
            ):
                await events_of(services, chat("Hi", response_format=form))
                grammar = sent[-1].grammar
                assert grammar is not None
                assert expected in grammar
            pattern = chat("Hi", response_format=ResponseFormat("regex", "a+"))
            with pytest.raises(HttpError) as caught:
                await events_of(services, pattern)
            assert caught.value.param == "response_format"

    run_async(body)


def test_what_the_baseline_lacks_is_refused_by_name(baseline: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(baseline) as services:
            for options, name in (
                (RequestOptions(logprobs=0), "logprobs"),
                (RequestOptions(seed=1), "seed"),
                (RequestOptions(frequency_penalty=1), "frequency_penalty"),
                (RequestOptions(top_k=4), "top_k"),
            ):
                with pytest.raises(HttpError) as caught:
                    await events_of(services, chat("Hi", options=options))
                assert (caught.value.status, caught.value.param) == (400, name)

    run_async(body)


def test_calls_that_must_be_made_rest_on_a_sentence(
    baseline: EngineLaunch, sent: list[Submit]
) -> None:
    async def body() -> None:
        async with serving(baseline) as services:
            choice = ToolChoice(ToolMode.NAMED, "get_weather")
            await events_of(services, chat("Hi", tools=(WEATHER,), tool_choice=choice))
            prompt = sent[0].prompt.decode()
            assert "You must call the function `get_weather`. Do not answer directly." in prompt

    run_async(body)


def test_a_thinking_budget_works_without_extended_forms(
    baseline: EngineLaunch, sent: list[Submit]
) -> None:
    async def body() -> None:
        async with serving(baseline, num_slots=2) as services:
            # the prompt is one text here, so the script is still there the second time
            turn = chat("[[tokens 9]] [[slow 0.02]]", thinking=True, thinking_budget=3)
            events = await events_of(services, turn)
            assert reasoning_of(events) == "word0 word1 word2 "
            assert text_of(events).startswith("word0 ")
            assert sent[1].prompt == sent[0].prompt + b"word0 word1 word2 </think>"
            assert sent[1].slot == sent[0].slot
            assert sent[1].max_tokens == sent[0].max_tokens - 3
            assert end_of(events).finish is Finish.STOP

    run_async(body)
