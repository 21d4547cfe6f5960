"""Calls in a turn: told as they come, cut by limits, one or several, forced where possible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.turns import (
    Finish,
    ResponseFormat,
    ToolArguments,
    ToolCallAborted,
    ToolCallFinished,
    ToolCallStarted,
    ToolChoice,
    ToolDeclaration,
    ToolMode,
    TurnEvent,
    TurnRequest,
)
from colibri_protocol.messages import RequestOptions
from tests.fakes.supervised import run_async
from tests.gateway.turn_rig import chat, end_of, events_of, reasoning_of, serving, text_of

if TYPE_CHECKING:
    from colibri_cli.supervisor.spawn import EngineLaunch

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER = ToolDeclaration("get_weather", PARAMETERS, {"name": "get_weather"})
CALL = (
    '<tool_call>\\n{"name": "get_weather", "arguments": {"city": "Rome"}}\\n</tool_call>'.replace(
        "\\n", "\n"
    )
)
HERMES = {
    "chat_template": "{% if tools %}<tools>{{ tools | tojson }}</tools> in <tool_call></tool_call>"
    ' like {"name": "x", "arguments": {}}{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
}
THINK = "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}"
WORDS = ["options", "segments", "model", "slots", "logprobs", "progress"]


def turn(script: str, **changes: Any) -> TurnRequest:  # noqa: ANN401
    return chat(script, tools=(WEATHER,), **changes)


def calls_of(events: list[TurnEvent]) -> list[tuple[str, Any]]:
    """Return names and arguments of the complete calls."""
    found: list[tuple[str, Any]] = []
    for event in events:
        if isinstance(event, ToolCallFinished):
            started = next(
                e for e in events if isinstance(e, ToolCallStarted) and e.index == event.index
            )
            pieces = [
                e.text for e in events if isinstance(e, ToolArguments) and e.index == event.index
            ]
            found.append((started.name, json.loads("".join(pieces))))
    return found


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_call_comes_out_however_it_was_cut(launch: EngineLaunch, size: int) -> None:
    text = f"Checking. {CALL}"
    pieces = "|".join(text[at : at + size] for at in range(0, len(text), size))

    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            options = RequestOptions(max_tokens=500)
            events = await events_of(services, turn(f"[[pieces {pieces}]]", options=options))
            assert calls_of(events) == [("get_weather", {"city": "Rome"})]
            assert text_of(events).strip() == "Checking."
            assert end_of(events).finish is Finish.TOOL_CALLS
            ids = [event.id for event in events if isinstance(event, ToolCallStarted)]
            assert all(len(call_id) == 29 and call_id.startswith("call_") for call_id in ids)

    run_async(body)


def test_talk_about_the_tag_is_no_call(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            text = "Write <tool_call> and then the name."
            events = await events_of(services, turn(f"[[pieces {text}]]"))
            assert text_of(events) == text
            assert end_of(events).finish is Finish.STOP

    run_async(body)


@pytest.mark.parametrize("first", [CALL[:45], CALL + CALL[:45], CALL + "<tool_call>", CALL[:12]])
def test_a_limit_inside_a_call_is_a_limit(launch: EngineLaunch, first: str) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            options = RequestOptions(max_tokens=1)
            events = await events_of(services, turn(f"[[pieces {first}|x]]", options=options))
            assert end_of(events).finish is Finish.LENGTH

    run_async(body)


def test_a_call_that_ended_before_the_limit_is_a_call(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            options = RequestOptions(max_tokens=1)
            events = await events_of(services, turn(f"[[pieces {CALL}| more]]", options=options))
            assert end_of(events).finish is Finish.TOOL_CALLS

    run_async(body)


def test_an_aborted_call_is_told_and_does_not_count(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            options = RequestOptions(max_tokens=1)
            cut = CALL[:-20]
            events = await events_of(services, turn(f"[[pieces {cut}|x]]", options=options))
            assert calls_of(events) == []
            if any(isinstance(event, ToolCallStarted) for event in events):
                assert any(isinstance(event, ToolCallAborted) for event in events)

    run_async(body)


def test_one_call_at_a_time_ends_the_answer_after_the_first(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            script = f"[[pieces {CALL}| and |{CALL}| and |more]] [[slow 0.05]]"
            events = await events_of(services, turn(script, parallel_tool_calls=False))
            assert len(calls_of(events)) == 1
            assert end_of(events).finish is Finish.TOOL_CALLS
            assert end_of(events).usage.completion_tokens < 5
            both = await events_of(services, turn(script))
            assert len(calls_of(both)) == 2

    run_async(body)


def test_without_tools_to_use_calls_are_text(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES) as services:
            none = ToolChoice(ToolMode.NONE)
            events = await events_of(services, turn(f"[[pieces {CALL}]]", tool_choice=none))
            assert text_of(events) == CALL
            assert end_of(events).finish is Finish.STOP

    run_async(body)


@pytest.mark.parametrize(
    ("choice", "has_grammar"),
    [
        (ToolChoice(), False),
        (ToolChoice(ToolMode.REQUIRED), True),
        (ToolChoice(ToolMode.NAMED, "get_weather"), True),
    ],
)
def test_calls_that_must_be_made_are_forced(
    launch: EngineLaunch, choice: ToolChoice, has_grammar: bool
) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES, words=[*WORDS, "grammar"]) as services:
            events = await events_of(services, turn("[[options]]", tool_choice=choice))
            assert ("lark" in text_of(events)) is has_grammar

    run_async(body)


def test_a_model_that_knows_no_tools_is_not_asked_to_guess(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, words=WORDS) as services:
            with pytest.raises(HttpError) as caught:
                await events_of(services, turn("hi"))
            assert (caught.value.status, caught.value.param) == (400, "tools")
        async with serving(launch, words=[*WORDS, "grammar"]) as services:
            events = await events_of(services, turn("[[options]]"))
            assert "lark" in text_of(events)

    run_async(body)


PERSON = ResponseFormat("json_schema", '{"type":"object","title":"PERSON"}')


@pytest.mark.parametrize("thinking", [True, False])
def test_calls_and_the_form_of_an_answer_are_one_grammar(
    launch: EngineLaunch, thinking: bool
) -> None:
    async def body() -> None:
        model = HERMES | {"chat_template": HERMES["chat_template"] + THINK}
        async with serving(launch, model=model, words=[*WORDS, "grammar"]) as services:
            changes = {"response_format": PERSON, "thinking": thinking}
            said = await events_of(services, turn("[[options]]", **changes))
            text = text_of(said) + reasoning_of(said)
            assert "lark" in text
            assert "%json" in text
            assert "PERSON" in text
            events = await events_of(services, turn(f"[[pieces a|</think>|{CALL}]]", **changes))
            assert calls_of(events) == [("get_weather", {"city": "Rome"})]
            forced = turn("[[options]]", **changes, tool_choice=ToolChoice(ToolMode.REQUIRED))
            said = await events_of(services, forced)
            assert "PERSON" not in text_of(said) + reasoning_of(said)

    run_async(body)


@pytest.mark.parametrize("kind", ["lark", "gbnf"])
def test_a_grammar_of_its_own_cannot_stand_beside_calls(launch: EngineLaunch, kind: str) -> None:
    async def body() -> None:
        async with serving(launch, model=HERMES, words=[*WORDS, "grammar"]) as services:
            wanted = ResponseFormat(kind, 'start: "x"')
            with pytest.raises(HttpError) as caught:
                await events_of(services, turn("hi", response_format=wanted))
            assert (caught.value.status, caught.value.param) == (400, "response_format")
            assert kind in caught.value.message

    run_async(body)
