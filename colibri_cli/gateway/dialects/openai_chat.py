"""The dialect of `/v1/chat/completions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.base import Conversation
from colibri_cli.gateway.dialects.base import (
    ParsedRequest,
    WholeAnswer,
    WholeChoice,
    check_model,
    session_key_of,
)
from colibri_cli.gateway.dialects.fields import read_fields, refusal
from colibri_cli.gateway.dialects.openai_chat_stream import ChatStream
from colibri_cli.gateway.dialects.openai_fields import CHAT_FIELDS
from colibri_cli.gateway.dialects.openai_format import parse_response_format
from colibri_cli.gateway.dialects.openai_messages import is_prefill, parse_messages
from colibri_cli.gateway.dialects.openai_sampling import (
    OpenAIRender,
    check_slots,
    check_stream_options,
    generation_of,
    render_of,
)
from colibri_cli.gateway.dialects.openai_shapes import (
    FINISH_WORDS,
    chat_logprobs,
    telemetry_body,
    usage_body,
)
from colibri_cli.gateway.dialects.openai_tools import (
    offered_tools,
    parse_tool_choice,
    parse_tools,
    template_tools,
)
from colibri_cli.gateway.problems import render_openai_error as render_error
from colibri_cli.gateway.turns import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served, StreamRenderer
    from colibri_cli.gateway.services import ServeSettings

__all__ = ["open_stream", "parse_request", "render_error", "render_whole"]

_ID_PREFIX: Final = "chatcmpl-"


def parse_request(
    body: Mapping[str, Any], served: Served, headers: Mapping[str, str]
) -> ParsedRequest[OpenAIRender]:
    """Check a body and return what it asks for.

    Raises:
        HttpError: 400 naming the field, 404 for a model that is not served.
    """
    settings = served.settings
    check_model(body, settings)
    values = read_fields(CHAT_FIELDS, body, served)
    messages = parse_messages(values["messages"])
    check_stream_options(values)
    check_slots(values, settings)
    tools, choice = parse_tool_choice(body, parse_tools(body, served))
    offered = offered_tools(tools, choice)
    thinking, effort = _thinking(values, settings)
    num_logprobs = _num_logprobs(values)
    turn = TurnRequest(
        conversation=Conversation(
            messages=messages,
            tools=template_tools(offered),
            thinking=thinking,
            effort=effort,
            continues_last=is_prefill(messages),
        ),
        generation=generation_of(values, settings, num_logprobs),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=values["parallel_tool_calls"],
        response_format=parse_response_format(values["response_format"], served),
        num_choices=values["n"],
        cache_slot=values["cache_slot"],
        session_key=session_key_of(body, headers),
        ignore_leading_stop=values["x_colibri_ignore_leading_stop"],
    )
    render = render_of(
        _ID_PREFIX, values, settings, has_tools=bool(offered), num_logprobs=num_logprobs
    )
    return ParsedRequest(turn, values["stream"], render)


def render_whole(parsed: ParsedRequest[OpenAIRender], answer: WholeAnswer) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    render = parsed.render
    body: dict[str, Any] = {
        "id": render.id,
        "object": "chat.completion",
        "created": render.created,
        "model": render.model,
        "choices": [_choice(index, one, render) for index, one in enumerate(answer.choices)],
        "usage": usage_body(answer.usage),
    }
    if render.has_telemetry:
        wait = answer.accepted.queue_wait_ms if answer.accepted is not None else None
        completed = [one.completed for one in answer.choices if one.completed is not None]
        body["colibri"] = telemetry_body(completed, wait)
    return body


def open_stream(parsed: ParsedRequest[OpenAIRender]) -> StreamRenderer:
    """Return the writer of a streamed answer."""
    return ChatStream(parsed.render)


def _choice(index: int, choice: WholeChoice, render: OpenAIRender) -> dict[str, Any]:
    assert choice.completed is not None
    text: str | None = choice.text
    if render.has_tools:
        text = choice.text.strip() or None
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
    logprobs = None
    if render.num_logprobs is not None:
        logprobs = chat_logprobs(choice.logprobs, render.num_logprobs)
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": FINISH_WORDS[choice.completed.finish],
    }


def _thinking(values: Mapping[str, Any], settings: ServeSettings) -> tuple[bool | None, str | None]:
    """Return whether to reason and at which level; None leaves it to format or server."""
    switch, effort = values["enable_thinking"], values["reasoning_effort"]
    level = None if effort == "none" else effort
    if switch is None:
        switch = settings.thinking if effort is None else level is not None
    return switch, level if switch else None


def _num_logprobs(values: Mapping[str, Any]) -> int | None:
    top = values["top_logprobs"]
    if not values["logprobs"]:
        if top:
            raise refusal("top_logprobs", "top_logprobs is only allowed with logprobs: true")
        return None
    return top or 0
