"""What people say is logged where that was asked for, in lines that no text can forge."""

from __future__ import annotations

import logging

import pytest

from colibri_cli.gateway.content_log import AnswerLog
from colibri_cli.gateway.turns import (
    Finish,
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallStarted,
    TurnCompleted,
    Usage,
)
from colibri_cli.logs import ANSWER_LOGGER, PROMPT_LOGGER, configure_logs


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, ANSWER_LOGGER)
    return caplog


def test_a_choice_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    log = AnswerLog("req_1", 0)
    log.take(ReasoningPiece("hm\n"))
    log.take(ReasoningPiece("hm"))
    log.take(TextPiece("Hé\r\n\x1b[31mforged\x85"))
    log.take(ToolCallStarted(0, "call_1", "weather"))
    log.take(ToolArguments(0, '{"city":'))
    log.take(ToolArguments(0, '"Rome"}'))
    log.take(TurnCompleted(Finish.TOOL_CALLS, Usage(1, 2)))
    log.close()
    said = r"reasoning 'hm\nhm' answer 'Hé\r\n\x1b[31mforged\x85'"
    called = """call 'weather {"city":"Rome"}'"""
    assert lines.messages == [f"req_1 choice 0: {said} {called} (tool_calls)"]


def test_what_did_not_end_is_said_to_be_cut(lines: pytest.LogCaptureFixture) -> None:
    log = AnswerLog("req_1", 1)
    log.take(TextPiece("half"))
    log.close()
    AnswerLog("req_2", 0).close()
    assert lines.messages == [
        "req_1 choice 1: answer 'half' (cut off)",
        "req_2 choice 0: nothing (cut off)",
    ]


def test_no_verbosity_turns_it_on() -> None:
    loggers = [logging.getLogger(name) for name in (ANSWER_LOGGER, PROMPT_LOGGER)]
    for content in (0, 1, 2, 0):
        configure_logs(2, content)
        assert [log.isEnabledFor(logging.DEBUG) for log in loggers] == [content >= 1, content >= 2]
