"""Tools in a chat: offered only when asked for, run only after a yes, and what goes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli.backends.base import TextDelta
from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallArguments,
    CallFinished,
    CallStarted,
)
from colibri_cli.chat_log.store import ChatLog
from colibri_cli.plugin_types import Tool
from tests.cli.chat.chat_rig import ScriptedBackend, chat, completed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.backends.base import AnswerEvent

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


class Weather:
    """Tools that note what they were called with."""

    def __init__(self) -> None:
        self.cities: list[object] = []

    def tools(self) -> Mapping[str, Tool]:
        async def later(arguments: Mapping[str, Any]) -> object:
            await asyncio.sleep(0)
            return {"city": arguments.get("city"), "celsius": 12}

        found = (
            Tool("weather", "Tells the weather.", self._run, SCHEMA),
            Tool("later", "Tells it later.", later, SCHEMA),
            Tool("broken", "Fails.", self._fail),
        )
        return {tool.name: tool for tool in found}

    def _run(self, arguments: Mapping[str, Any]) -> str:
        self.cities.append(arguments.get("city"))
        return "rain"

    def _fail(self, arguments: Mapping[str, Any]) -> str:
        raise LookupError("no such place")


def call_of(name: str, arguments: str = '{"city": "Rome"}', id: str = "") -> list[AnswerEvent]:
    half = len(arguments) // 2
    pieces = [CallArguments(arguments[:half]), CallArguments(arguments[half:])]
    return [CallStarted(name, id), *pieces, CallFinished()]


def calling(*calls: list[AnswerEvent], text: str = "") -> ScriptedBackend:
    """A model that makes calls, then answers."""
    backend = ScriptedBackend()
    said: list[AnswerEvent | Exception] = [TextDelta(text)] if text else []
    backend.answers.append([*said, *(event for events in calls for event in events), completed()])
    backend.will_answer("It rains.")
    return backend


def asked(backend: ScriptedBackend, number: int) -> list[tuple[str, str]]:
    return [(m.role, m.content) for m in backend.asked[number][0].messages]


def test_no_tool_is_offered_until_it_is_asked_for() -> None:
    backend = ScriptedBackend()
    for _ in range(3):
        backend.will_answer("a")
    chat(backend, ["q", "/tools weather", "q", "/tools off", "q"], tools=Weather().tools)
    offered = [generation.tools for _, generation in backend.asked]
    assert [None if use is None else [t.name for t in use.tools] for use in offered] == [
        None, ["weather"], None,
    ]  # fmt: skip
    assert offered[1] is not None
    assert offered[1].tools[0].declaration["description"] == "Tells the weather."


def test_a_call_is_run_after_a_yes_and_its_result_goes_back() -> None:
    weather, backend = Weather(), calling(call_of("weather", id="c7"), text="Let me see.")
    done = chat(backend, ["/tools on weather", "how is Rome?", "y"], tools=weather.tools)
    assert weather.cities == ["Rome"]
    assert 'wants to call weather(city="Rome")' in done.screen.notices
    assert asked(backend, 1) == [
        ("user", "how is Rome?"), ("assistant", "Let me see."), ("tool", "rain"),
    ]  # fmt: skip
    called, given = backend.asked[1][0].messages[1:]
    assert (called.tool_calls[0].name, called.tool_calls[0].arguments) == (
        "weather", {"city": "Rome"},
    )  # fmt: skip
    assert (called.tool_calls[0].id, given.tool_call_id, given.name) == ("c7", "c7", "weather")
    assert done.session.turns[0].answer == "It rains."


def test_the_calls_stay_in_the_conversation() -> None:
    backend = calling(call_of("weather"))
    backend.will_answer("bye")
    chat(backend, ["/tools on", "how is Rome?", "y", "thanks"], tools=Weather().tools)
    assert asked(backend, 2)[-3:] == [
        ("tool", "rain"), ("assistant", "It rains."), ("user", "thanks"),
    ]  # fmt: skip


@pytest.mark.parametrize("answer", ["n", "no"])
def test_a_call_without_a_yes_is_not_run(answer: str) -> None:
    weather, backend = Weather(), calling(call_of("weather"))
    chat(backend, ["/tools on", "q", answer], tools=weather.tools)
    assert weather.cities == []
    assert asked(backend, 1)[-1] == ("tool", "The user did not allow this call.")


def test_what_is_neither_yes_nor_no_is_asked_again() -> None:
    weather, backend = Weather(), calling(call_of("weather"))
    chat(backend, ["/tools on", "q", "maybe", "yes"], tools=weather.tools)
    assert weather.cities == ["Rome"]


def test_the_end_of_input_is_a_no() -> None:
    weather, backend = Weather(), calling(call_of("weather"))
    chat(backend, ["/tools on", "q"], tools=weather.tools)
    assert weather.cities == []


def test_always_holds_for_that_tool_until_it_is_taken_back() -> None:
    weather = Weather()
    backend = calling(call_of("weather"), call_of("weather", '{"city": "Oslo"}'))
    backend.answers += calling(call_of("weather", '{"city": "Bonn"}')).answers
    lines = ["/tools on", "q", "a", "/tools off", "/tools on", "q", "n"]
    chat(backend, lines, tools=weather.tools)
    assert weather.cities == ["Rome", "Oslo"]


def test_a_result_that_is_no_text_goes_back_as_json_and_a_failure_as_what_it_says() -> None:
    backend = calling(call_of("later"), call_of("broken", ""))
    chat(backend, ["/tools on", "q", "y", "y"], tools=Weather().tools)
    assert asked(backend, 1)[-2:] == [
        ("tool", '{"city": "Rome", "celsius": 12}'), ("tool", "error: LookupError: no such place"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["weather", "nothing"])
def test_a_tool_that_was_not_offered_is_not_run(name: str) -> None:
    weather, backend = Weather(), calling(call_of(name))
    chat(backend, ["/tools later", "q"], tools=weather.tools)
    assert weather.cities == []
    assert asked(backend, 1)[-1] == ("tool", f"There is no tool {name}.")


def test_a_call_that_breaks_off_is_none() -> None:
    weather, backend = Weather(), ScriptedBackend()
    started: list[AnswerEvent] = [
        CallStarted("weather"),
        CallArguments('{"ci'),
        CallAborted("<tool_call>"),
    ]
    backend.answers.append([TextDelta("hm"), *started, completed("length")])
    done = chat(backend, ["/tools on", "q"], tools=weather.tools)
    assert (weather.cities, done.session.turns[0].answer) == ([], "hm")


def test_a_model_that_calls_for_ever_is_ended() -> None:
    backend = ScriptedBackend()
    for _ in range(20):
        backend.answers.append([*call_of("weather"), completed()])
    done = chat(backend, ["/tools on", "q", "a"], tools=Weather().tools)
    assert len(backend.asked) == 17
    assert done.session.turns == []
    assert any("16 times" in notice for notice in done.screen.notices)


def test_the_log_has_the_calls(tmp_path: Path) -> None:
    log = tmp_path / "logs.db"
    chat(calling(call_of("weather")), ["/tools on", "q", "y"], tools=Weather().tools, log=log)
    with ChatLog(log) as kept:
        (turn,) = kept.turns(kept.conversations(1)[0])
    assert turn.response == "It rains."
    assert turn.options["calls"] == [
        {"name": "weather", "arguments": {"city": "Rome"}, "result": "rain"}
    ]


def test_the_list_says_what_is_offered_and_a_wrong_name_the_nearest() -> None:
    done = chat(ScriptedBackend(), ["/tools later", "/tools wether"], tools=Weather().tools)
    assert done.screen.notices == [
        "broken   off          Fails.",
        "later    asks         Tells it later.",
        "weather  off          Tells the weather.",
    ]
    assert (done.screen.errors[0].message, done.screen.errors[0].hint) == (
        "there is no tool 'wether'", "did you mean weather?",
    )  # fmt: skip


def test_without_plugins_the_list_says_where_tools_come_from() -> None:
    done = chat(ScriptedBackend(), ["/tools"])
    assert "plugins" in done.screen.notices[0]
