"""What some templates assume about earlier calls and their results, made true."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.base import ChatMessage


def one_call_each(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the conversation with a message of its own for each call, before its result.

    For templates that write the first call of a message only.
    """
    turns: list[ChatMessage] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            turns.append(message)
            continue
        results: list[ChatMessage] = []
        while place < len(messages) and messages[place].role == "tool":
            results.append(messages[place])
            place += 1
        turns += _split(message, results)
    return tuple(turns)


def _split(message: ChatMessage, results: list[ChatMessage]) -> list[ChatMessage]:
    turns: list[ChatMessage] = []
    for index, call in enumerate(message.tool_calls):
        single = replace(message, tool_calls=(call,))
        turns.append(single if index == 0 else replace(single, content="", reasoning=""))
        of_call = [result for result in results if result.tool_call_id == call.id]
        answer = next(iter(of_call or results), None)
        if answer is not None:
            results.remove(answer)
            turns.append(answer)
    return turns + results


def with_named_ids(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the conversation with ids that name the function: `functions.NAME:INDEX`.

    For templates that write the id alone, as Kimi K2 was taught.
    """
    names: dict[str, str] = {}
    turns: list[ChatMessage] = []
    num_calls = 0
    for message in messages:
        calls = []
        for call in message.tool_calls:
            names[call.id] = f"functions.{call.name}:{num_calls}"
            calls.append(replace(call, id=names[call.id]))
            num_calls += 1
        result_id = message.tool_call_id
        if result_id is not None:
            result_id = names.get(result_id, result_id)
        turns.append(replace(message, tool_calls=tuple(calls), tool_call_id=result_id))
    return tuple(turns)
