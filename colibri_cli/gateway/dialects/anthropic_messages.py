"""The dialect of `/v1/messages`: bodies to turns, turns to messages, errors to its envelope.

`anthropic_fields` has the table of fields, `anthropic_blocks` translates content,
`anthropic_stream` writes the events.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Generation
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.gateway.dialects.anthropic_blocks import ID_DIGITS
from colibri_cli.gateway.dialects.anthropic_fields import (
    COUNT_FIELDS,
    MESSAGE_FIELDS,
    Choice,
    OutputConfig,
    Thinking,
)
from colibri_cli.gateway.dialects.anthropic_shapes import (
    SIGNATURE,
    MessageRender,
    error_object,
    message_object,
    stop_object,
    tool_use_id,
    usage_object,
)
from colibri_cli.gateway.dialects.anthropic_stream import MessageStream
from colibri_cli.gateway.dialects.base import (
    ParsedRequest,
    check_model,
    has_nul,
    new_id,
    session_key_of,
)
from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    not_announced,
    read_fields,
    refusal,
    shown,
)
from colibri_cli.gateway.dialects.openai_tools import offered_tools, template_tools
from colibri_cli.gateway.http_types import json_response
from colibri_cli.gateway.turns import ToolChoice, ToolMode, TurnRequest
from colibri_protocol.messages import RequestOptions, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import (
        Served,
        StreamRenderer,
        WholeAnswer,
        WholeCall,
        WholeChoice,
    )
    from colibri_cli.gateway.dialects.fields import Field
    from colibri_cli.gateway.http_types import HttpError, Response
    from colibri_cli.gateway.turns import ResponseFormat, ToolDeclaration

_DEFAULT_EFFORT: Final = "high"


# ---- requests -----------------------------------------------------------------------------------


def parse_request(
    body: Mapping[str, Any], served: Served, headers: Mapping[str, str]
) -> ParsedRequest[MessageRender]:
    """Check a body and return what it asks for.

    Raises:
        HttpError: 400 naming the field, 404 for a model that is not served.
    """
    values = _read(MESSAGE_FIELDS, body, served)
    settings = served.settings
    slot = values["cache_slot"]
    if slot is not None and slot >= settings.kv_slots:
        raise refusal(
            "cache_slot", f"cache_slot must be in 0..{settings.kv_slots - 1}, not {shown(slot)}"
        )
    tools, choice = _tools(values, served)
    thinking, conversation = _conversation(values, choice, served)
    options = RequestOptions(
        max_tokens=settings.limited(values["max_tokens"]),
        temperature=_or(values["temperature"], settings.temperature),
        top_p=_or(values["top_p"], settings.top_p),
        top_k=values["top_k"],
    )
    turn = TurnRequest(
        conversation=conversation,
        generation=Generation(options, values["stop_sequences"]),
        tools=tools,
        tool_choice=choice.tool_choice,
        parallel_tool_calls=choice.is_parallel,
        response_format=_response_format(values, served),
        thinking_budget=thinking.budget,
        cache_slot=slot,
        session_key=session_key_of(body, headers),
    )
    render = MessageRender(
        model=settings.model_id,
        id=new_id("msg_", ID_DIGITS),
        thinking=thinking,
        always_thinks=thinking.is_on and served.can_think,
        has_tools=bool(tools) and choice.tool_choice.mode is not ToolMode.NONE,
        edits_context=body.get("context_management") is not None,
    )
    return ParsedRequest(turn, values["stream"], render)


def parse_count(body: Mapping[str, Any], served: Served) -> Conversation:
    """Check a body for counting and return the conversation whose prompt is to be counted.

    Raises:
        HttpError: as `parse_request`; `max_tokens` may be absent.
    """
    values = _read(COUNT_FIELDS, body, served)
    _, choice = _tools(values, served)
    return _conversation(values, choice, served)[1]


def _read(table: tuple[Field, ...], body: Mapping[str, Any], served: Served) -> dict[str, Any]:
    check_model(body, served.settings)
    values = read_fields(table, body, served)
    for name in ("messages", "system", "tools", "stop_sequences"):
        if has_nul(body.get(name)):
            raise refusal(name, f"{name} holds a NUL character; remove it")
    return values


def _tools(values: Mapping[str, Any], served: Served) -> tuple[tuple[ToolDeclaration, ...], Choice]:
    tools: tuple[ToolDeclaration, ...] = values["tools"]
    for index, tool in enumerate(tools):
        if tool.is_strict and Word.GRAMMAR not in served.words:
            raise not_announced(f"tools.{index}.strict")
    choice: Choice | None = values["tool_choice"]
    if choice is None:
        return tools, Choice(ToolChoice(), is_parallel=True)
    mode, name = choice.tool_choice.mode, choice.tool_choice.name
    if not tools and mode is not ToolMode.NONE:
        raise refusal("tool_choice", "tool_choice is given without tools", INVALID_VALUE)
    if mode is ToolMode.NAMED and name not in {tool.name for tool in tools}:
        raise refusal(
            "tool_choice", f"tool_choice names {shown(name)}, which is not declared", INVALID_VALUE
        )
    return tools, choice


def _conversation(
    values: Mapping[str, Any], choice: Choice, served: Served
) -> tuple[Thinking, Conversation]:
    messages: tuple[ChatMessage, ...] = values["messages"]
    if not messages:
        raise refusal("messages", "messages holds nothing to answer")
    last = messages[-1]
    continues = last.role == "assistant" and bool(last.content) and not last.tool_calls
    by_default = served.settings.thinking
    thinking: Thinking = values["thinking"] or Thinking(by_default is True, is_adaptive=True)
    if continues and thinking.is_on:
        if not thinking.is_adaptive:
            raise refusal(
                "thinking",
                "thinking cannot be enabled while the last message is an assistant's, whose text"
                " is continued",
            )
        thinking = Thinking(is_on=False)
    if values["system"]:
        messages = (ChatMessage("system", values["system"]), *messages)
    output: OutputConfig = values["output_config"] or OutputConfig()
    return thinking, Conversation(
        messages=messages,
        tools=template_tools(offered_tools(values["tools"], choice.tool_choice)),
        thinking=None if by_default is None and not values["thinking"] else thinking.is_on,
        effort=(output.effort or _DEFAULT_EFFORT) if thinking.is_on else None,
        continues_last=continues,
    )


def _response_format(values: Mapping[str, Any], served: Served) -> ResponseFormat | None:
    output: OutputConfig = values["output_config"] or OutputConfig()
    if output.response_format is not None:
        name, chosen = "output_config.format", output.response_format
    elif values["output_format"] is not None:
        name, chosen = "output_format", values["output_format"]
    else:
        return None
    if Word.GRAMMAR not in served.words:
        raise not_announced(name)
    return chosen


def fold_instructions(conversation: Conversation) -> Conversation | None:
    """Return the conversation with later system messages as parts of the user's; None without any.

    For chat templates that take instructions at the beginning alone. The words stay in their
    place, marked as what they are.
    """
    turns: list[ChatMessage] = []
    is_changed = False
    for message in conversation.messages:
        if message.role != "system" or not turns:
            turns.append(message)
            continue
        is_changed = True
        text = f"<system-reminder>\n{message.content}\n</system-reminder>"
        if turns[-1].role == "user":
            turns[-1] = replace(turns[-1], content=f"{turns[-1].content}\n\n{text}")
        else:
            turns.append(ChatMessage("user", text))
    return replace(conversation, messages=tuple(turns)) if is_changed else None


def _or(value: float | None, default: float | None) -> float | None:
    return default if value is None else value


# ---- answers ------------------------------------------------------------------------------------


def render_whole(parsed: ParsedRequest[MessageRender], answer: WholeAnswer) -> dict[str, Any]:
    """Return the message of an answer that is not streamed."""
    render, choice = parsed.render, answer.choices[0]
    assert choice.completed is not None
    message = message_object(render, usage_object(answer.usage, render))
    message["content"] = _content(render, choice)
    message |= stop_object(choice.completed)
    return message


def open_stream(parsed: ParsedRequest[MessageRender]) -> StreamRenderer:
    """Return the writer of a streamed answer."""
    return MessageStream(parsed.render)


def _content(render: MessageRender, choice: WholeChoice) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if render.thinking.is_on and (render.always_thinks or choice.reasoning):
        thinking = choice.reasoning if render.thinking.is_shown else ""
        blocks.append({"type": "thinking", "thinking": thinking, "signature": SIGNATURE})
    text = choice.text.strip() if render.has_tools else choice.text
    if text.strip() or (text and not blocks):
        blocks.append({"type": "text", "text": text})
    return blocks + [block for call in choice.calls if (block := _tool_use(call)) is not None]


def _tool_use(call: WholeCall) -> dict[str, Any] | None:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None  # cut off by the token limit: half a call is none
    return {
        "type": "tool_use",
        "id": tool_use_id(call.id),
        "name": call.name,
        "input": arguments,
    }


# ---- errors -------------------------------------------------------------------------------------


def render_error(error: HttpError, request_id: str) -> Response:
    """Return an error in the envelope of this API."""
    body = {**error_object(error), "request_id": request_id}
    return json_response(error.status, body, {**error.headers, "request-id": request_id})
