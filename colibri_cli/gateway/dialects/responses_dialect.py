"""The dialect of `/v1/responses`: bodies to turns, turns to responses, errors to its envelope.

`responses_fields` has the table of fields, `responses_input` and `responses_tools` translate what
goes in, `responses_stream` writes the events, `responses_store` keeps answers to go on from.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from colibri_cli.backends.base import Generation
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.gateway.dialects.base import (
    ParsedRequest,
    check_model,
    has_nul,
    new_id,
    session_key_of,
)
from colibri_cli.gateway.dialects.fields import (
    UNKNOWN_PARAMETER,
    not_announced,
    read_fields,
    refusal,
    shown,
)
from colibri_cli.gateway.dialects.openai_format import parse_response_format
from colibri_cli.gateway.dialects.openai_tools import offered_tools, template_tools
from colibri_cli.gateway.dialects.responses_fields import (
    LOGPROBS,
    PACKED_REASONING,
    RESPONSE_FIELDS,
    Reasoning,
    TextConfig,
)
from colibri_cli.gateway.dialects.responses_input import ID_DIGITS, read_items
from colibri_cli.gateway.dialects.responses_shapes import (
    ResponseRender,
    call_item,
    logprob_objects,
    message_item,
    reasoning_item,
    remember,
    response_object,
    status_of,
    text_part,
)
from colibri_cli.gateway.dialects.responses_store import OwnedResponses, ResponseStore
from colibri_cli.gateway.dialects.responses_stream import ResponseStream
from colibri_cli.gateway.dialects.responses_tools import parse_tool_choice, parse_tools
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.problems import render_openai_error
from colibri_cli.gateway.turns import TurnRequest
from colibri_protocol.messages import RequestOptions, Word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.gateway.dialects.base import (
        Served,
        StreamRenderer,
        WholeAnswer,
        WholeChoice,
    )
    from colibri_cli.gateway.dialects.responses_tools import Tools
    from colibri_cli.gateway.http_types import Response
    from colibri_cli.gateway.turns import ResponseFormat, ToolChoice

# ---- requests -----------------------------------------------------------------------------------


def parse_request(
    body: Mapping[str, Any],
    served: Served,
    headers: Mapping[str, str],
    responses: OwnedResponses | None = None,
) -> ParsedRequest[ResponseRender]:
    """Check a body and return what it asks for.

    Args:
        body: The request.
        served: What it is checked against.
        headers: Of the request.
        responses: The client's earlier answers.

    Raises:
        HttpError: 400 naming the field, 404 for a model that is not served or an answer that is
            not there.
    """
    settings = served.settings
    check_model(body, settings)
    values = read_fields(RESPONSE_FIELDS, body, served)
    for name in ("input", "instructions", "tools"):
        if has_nul(body.get(name)):
            raise refusal(name, f"{name} holds a NUL character; remove it")
    slot = values["cache_slot"]
    if slot is not None and slot >= settings.kv_slots:
        raise refusal(
            "cache_slot", f"cache_slot must be in 0..{settings.kv_slots - 1}, not {shown(slot)}"
        )
    responses = responses or OwnedResponses(ResponseStore())
    tools, choice = parse_tool_choice(values["tool_choice"], parse_tools(values["tools"], served))
    messages = _messages(values, tools, responses)
    num_logprobs = _num_logprobs(values, served)
    turn = TurnRequest(
        conversation=_conversation(values, messages, tools, choice, served),
        generation=Generation(_options(values, served, num_logprobs)),
        tools=tools.declared,
        tool_choice=choice,
        parallel_tool_calls=values["parallel_tool_calls"],
        response_format=_response_format(values, served),
        cache_slot=slot,
        session_key=session_key_of(body, headers),
    )
    reasoning: Reasoning = values["reasoning"] or Reasoning()
    render = ResponseRender(
        id=new_id("resp_", ID_DIGITS),
        created=int(time.time()),
        echo=_echo(values, body, turn, tools, served),
        tools=tools,
        has_tools=bool(offered_tools(tools.declared, choice)),
        summarizes=reasoning.summary is not None,
        packs_reasoning=PACKED_REASONING in values["include"],
        num_logprobs=num_logprobs,
        messages=messages,
        input_items=values["input"],
        responses=responses if values["store"] else None,
    )
    return ParsedRequest(turn, values["stream"], render)


def _messages(
    values: Mapping[str, Any], tools: Tools, responses: OwnedResponses
) -> tuple[ChatMessage, ...]:
    """Return the conversation without instructions."""
    earlier: tuple[ChatMessage, ...] = ()
    previous_id = values["previous_response_id"]
    if previous_id is not None:
        previous = responses.get(previous_id)
        if previous is None:
            raise no_response(previous_id, "previous_response_id")
        earlier = previous.messages
    messages = read_items(values["input"], tools, responses.item, earlier)
    if not messages:
        raise refusal("input", "input holds nothing to answer")
    return (*earlier, *messages)


def _conversation(
    values: Mapping[str, Any],
    messages: tuple[ChatMessage, ...],
    tools: Tools,
    choice: ToolChoice,
    served: Served,
) -> Conversation:
    reasoning: Reasoning = values["reasoning"] or Reasoning()
    effort = None if reasoning.effort == "none" else reasoning.effort
    thinking = served.settings.thinking if reasoning.effort is None else effort is not None
    if values["instructions"]:
        messages = (ChatMessage("system", values["instructions"]), *messages)
    return Conversation(
        messages=messages,
        tools=template_tools(offered_tools(tools.declared, choice)),
        thinking=thinking,
        effort=effort,
    )


def _options(values: Mapping[str, Any], served: Served, num_logprobs: int | None) -> RequestOptions:
    settings = served.settings
    temperature, top_p = values["temperature"], values["top_p"]
    return RequestOptions(
        max_tokens=settings.limited(values["max_output_tokens"]),
        temperature=settings.temperature if temperature is None else temperature,
        top_p=settings.top_p if top_p is None else top_p,
        logprobs=num_logprobs,
    )


def _num_logprobs(values: Mapping[str, Any], served: Served) -> int | None:
    top: int = values["top_logprobs"] or 0
    if not top and LOGPROBS not in values["include"]:
        return None
    if Word.LOGPROBS not in served.words:
        raise not_announced("include")
    return top


def _response_format(values: Mapping[str, Any], served: Served) -> ResponseFormat | None:
    text: TextConfig = values["text"] or TextConfig()
    value = text.format
    if isinstance(value, dict) and value.get("type") == "json_schema":
        # the same as in chat completions, one level flatter
        value = {"type": "json_schema", "json_schema": value}
    try:
        return parse_response_format(value, served)
    except HttpError as error:
        raise _renamed(error) from None


def _echo(
    values: Mapping[str, Any],
    body: Mapping[str, Any],
    turn: TurnRequest,
    tools: Tools,
    served: Served,
) -> dict[str, Any]:
    """Return what the response repeats of its request, with the values in force."""
    reasoning: Reasoning = values["reasoning"] or Reasoning()
    text: TextConfig = values["text"] or TextConfig()
    options = turn.generation.options
    cache_key, user = values["prompt_cache_key"], values["user"]
    return {
        "model": served.settings.model_id,
        "instructions": values["instructions"],
        "max_output_tokens": values["max_output_tokens"],
        "max_tool_calls": None,
        "metadata": values["metadata"] or {},
        "parallel_tool_calls": values["parallel_tool_calls"],
        "previous_response_id": values["previous_response_id"],
        "prompt_cache_key": cache_key if isinstance(cache_key, str) else None,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "service_tier": "default",
        "store": values["store"],
        "temperature": options.temperature,
        "text": {
            "format": text.format or {"type": "text"},
            "verbosity": text.verbosity or "medium",
        },
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": list(tools.accepted),
        "top_logprobs": values["top_logprobs"] or 0,
        "top_p": options.top_p,
        "truncation": "disabled",
        "user": user if isinstance(user, str) else None,
    }


# ---- answers ------------------------------------------------------------------------------------


def render_whole(parsed: ParsedRequest[ResponseRender], answer: WholeAnswer) -> dict[str, Any]:
    """Return the response of an answer that is not streamed, and keep it."""
    render, choice = parsed.render, answer.choices[0]
    assert choice.completed is not None
    status = status_of(choice.completed)
    body = response_object(render, status, _output(render, choice, status), answer.usage)
    remember(render, body)
    return body


def open_stream(parsed: ParsedRequest[ResponseRender]) -> StreamRenderer:
    """Return the writer of a streamed answer."""
    return ResponseStream(parsed.render)


def _output(render: ResponseRender, choice: WholeChoice, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if choice.reasoning:
        item_id = render.item_id("rs_", 0)
        items.append(reasoning_item(render, item_id, choice.reasoning, "completed"))
    text = choice.text.strip() if render.has_tools else choice.text
    if text.strip() or (text and not items):
        part = text_part(text, logprob_objects(render, choice.logprobs))
        item_id = render.item_id("msg_", len(items))
        items.append(message_item(item_id, [part], "completed"))
    for call in choice.calls:
        if not _is_complete(call.arguments):
            continue  # cut off by the token limit: half a call is none
        told = (call.id, call.name, call.arguments)
        items.append(call_item(render, len(items), told, "completed"))
    if items and status == "incomplete" and not choice.calls:
        items[-1]["status"] = status  # what was being written when the limit came
    return items


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def item_page(items: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of items, the newest first unless asked for in order.

    Raises:
        HttpError: 400 naming the query parameter.
    """
    order, limit, after = query.get("order", "desc"), query.get("limit", "20"), query.get("after")
    if order not in {"asc", "desc"}:
        raise refusal("order", f"order must be asc or desc, not {shown(order)}")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= 100):
        raise refusal("limit", f"limit must be in 1..100, not {shown(limit)}")
    listed = list(items if order == "asc" else reversed(items))
    ids = [item["id"] for item in listed]
    start = ids.index(after) + 1 if after in ids else 0
    page = listed[start : start + int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(listed),
    }


# ---- errors -------------------------------------------------------------------------------------


def no_response(response_id: str, param: str | None = None) -> HttpError:
    """Return the 404 for an answer that is not there."""
    return HttpError(
        404,
        f"there is no response {shown(response_id)}; answers are kept for a day, unless made with"
        " store: false, and not over a restart of the server",
        code="previous_response_not_found" if param else "not_found",
        param=param,
    )


def render_error(error: HttpError, request_id: str) -> Response:
    """Return an error in the envelope of this API."""
    return render_openai_error(_renamed(error), request_id)


def _renamed(error: HttpError) -> HttpError:
    """Return an error in the words of this API, which has other names for some fields."""
    if error.code == UNKNOWN_PARAMETER:
        return error  # the client did send that name
    if error.param == "response_format":
        param = "text.format"
    elif error.param == "messages":
        param = "input"
    else:
        return error
    return HttpError(
        error.status,
        error.message.replace("response_format", "text.format").replace("json_schema.", ""),
        code=error.code,
        param=param,
        error_type=error.error_type,
        headers=error.headers,
    )
