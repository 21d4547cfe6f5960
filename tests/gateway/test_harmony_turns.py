"""Turns of a model that writes messages with channels (gpt-oss)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli.gateway.turns import Finish, ResponseFormat, ToolDeclaration, TurnEvent
from colibri_protocol.messages import RequestOptions
from tests.cli.chat_formats.test_harmony import TEMPLATE, VOCABULARY
from tests.fakes.supervised import run_async
from tests.gateway.test_calls import calls_of
from tests.gateway.turn_rig import chat, end_of, events_of, reasoning_of, serving, text_of

if TYPE_CHECKING:
    from colibri_cli.supervisor.spawn import EngineLaunch

MODEL = {"chat_template": TEMPLATE, "special_tokens": VOCABULARY.special_tokens}
WORDS = ["options", "segments", "model", "slots", "grammar", "logprobs"]
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LS = ToolDeclaration("ls", PARAMETERS, {"name": "ls"})
THOUGHT = "<|channel|>analysis<|message|>why [[options]]<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CALL = '<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{"path": "a"}'
FORM = ResponseFormat("json_schema", '{"type":"integer"}')


def says(text: str) -> str:
    """Return the directive for a reply that may hold brackets."""
    return f"[[json {json.dumps(text).replace(']', chr(92) + 'u005d')}]]"


def events_for(launch: EngineLaunch, script: str, **changes: Any) -> list[TurnEvent]:  # noqa: ANN401
    """Return the events of one turn."""
    found: list[TurnEvent] = []
    changes.setdefault("options", RequestOptions(max_tokens=500))

    async def body() -> None:
        async with serving(launch, model=MODEL, words=WORDS, num_slots=2) as services:
            found.extend(await events_of(services, chat(script, **changes)))

    run_async(body)
    return found


def test_reasoning_and_answer(launch: EngineLaunch) -> None:
    events = events_for(launch, says(f"{THOUGHT}{FINAL}Hello you."))
    assert (reasoning_of(events), text_of(events)) == ("why [[options]]", "Hello you.")


def test_a_call_ends_the_turn(launch: EngineLaunch) -> None:
    events = events_for(launch, says(f"{THOUGHT}{CALL}"), tools=(LS,))
    assert calls_of(events) == [("ls", {"path": "a"})]
    assert text_of(events) == ""
    assert reasoning_of(events) == "why [[options]]"
    assert end_of(events).finish is Finish.TOOL_CALLS


@pytest.mark.parametrize("thought", [THOUGHT, ""])
def test_the_form_begins_where_the_answer_does(launch: EngineLaunch, thought: str) -> None:
    script = says(f"{thought}{FINAL}free") + "[[slow 0.01]]"
    events = events_for(launch, script, response_format=FORM)
    assert reasoning_of(events) == ("why [[options]]" if thought else "")
    if thought:  # the last text of the second request is the reasoning, which asks for the options
        options = json.loads(text_of(events))
        assert options["grammar"]["kind"] == "json_schema"
    assert end_of(events).finish is Finish.STOP


def test_beside_tools_the_form_is_part_of_one_grammar(launch: EngineLaunch) -> None:
    script = "[[options]]"
    events = events_for(launch, script, response_format=FORM, tools=(LS,))
    options = json.loads(text_of(events))
    assert options["grammar"]["kind"] == "lark"
    assert '"integer"' in options["grammar"]["text"]


def test_a_budget_closes_the_message_of_the_reasoning(launch: EngineLaunch) -> None:
    words = " ".join(f"w{n}" for n in range(40))
    script = f"[[reply <|channel|>analysis<|message|>{words}]] [[slow 0.01]]"
    events = events_for(launch, script, thinking=True, thinking_budget=5)
    assert reasoning_of(events).startswith("w0 w1 w2")
    assert "w12" not in reasoning_of(events)
    assert text_of(events) == "Hello from the fake engine."
