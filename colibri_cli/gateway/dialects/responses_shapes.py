"""Objects of the Responses API that whole and streamed answers share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import compact_json
from colibri_cli.gateway.dialects.openai_shapes import chat_logprobs
from colibri_cli.gateway.dialects.responses_input import Item, pack_reasoning, read_items
from colibri_cli.gateway.dialects.responses_store import StoredResponse
from colibri_cli.gateway.dialects.responses_tools import CUSTOM_INPUT, Tools
from colibri_cli.gateway.turns import Finish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.chat_formats.base import ChatMessage
    from colibri_cli.gateway.dialects.responses_store import OwnedResponses
    from colibri_cli.gateway.http_types import HttpError
    from colibri_cli.gateway.turns import TokenLogprob, TurnCompleted, Usage

_ERROR_CODES: Final = {429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRender:
    """What is needed to write the answer.

    Args:
        id: Of the response.
        created: Unix seconds.
        echo: What the response repeats of its request.
        tools: The declared tools.
        has_tools: Some are offered: white space around calls is not part of the answer.
        summarizes: Reasoning is shown as its summary, else as content.
        packs_reasoning: Reasoning is also given as a parcel for clients that keep no state.
        num_logprobs: Alternatives wanted per token; None: no log-probabilities.
        messages: The conversation without instructions.
        input_items: What the request added to it.
        responses: Where the answer is kept; None: nowhere.
    """

    id: str
    created: int
    echo: Mapping[str, Any]
    tools: Tools = field(default_factory=Tools)
    has_tools: bool = False
    summarizes: bool = False
    packs_reasoning: bool = False
    num_logprobs: int | None = None
    messages: tuple[ChatMessage, ...] = ()
    input_items: tuple[Item, ...] = ()
    responses: OwnedResponses | None = None

    def item_id(self, prefix: str, index: int) -> str:
        """Return the id of an output item."""
        return f"{prefix}{self.id.removeprefix('resp_')}{index:02d}"


def response_object(
    render: ResponseRender,
    status: str,
    output: Sequence[Item] = (),
    usage: Usage | None = None,
    error: HttpError | None = None,
) -> dict[str, Any]:
    """Return the response in some state."""
    is_cut = status == "incomplete"
    return {
        "id": render.id,
        "object": "response",
        "created_at": render.created,
        "status": status,
        "background": False,
        "error": error_object(error) if error is not None else None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        **render.echo,
        "output": list(output),
        "usage": usage_object(usage) if usage is not None else None,
    }


def status_of(completed: TurnCompleted) -> str:
    """Return the state an answer ends in."""
    return "incomplete" if completed.finish is Finish.LENGTH else "completed"


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return the tokens of an answer."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.reused_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def error_object(error: HttpError) -> dict[str, Any]:
    """Return the error of a failed response."""
    code = error.code if error.status < 500 else None
    return {
        "code": code or _ERROR_CODES.get(error.status, "server_error"),
        "message": error.message,
    }


# ---- items --------------------------------------------------------------------------------------


def reasoning_item(
    render: ResponseRender, item_id: str, text: str | None, status: str
) -> dict[str, Any]:
    """Return a reasoning item; without text it has just begun."""
    item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": []}
    if text is not None and render.summarizes:
        item["summary"] = [summary_part(text)]
    elif not render.summarizes:
        item["content"] = [] if text is None else [reasoning_part(text)]
    if text is not None and render.packs_reasoning:
        item["encrypted_content"] = pack_reasoning(text)
    item["status"] = status
    return item


def message_item(item_id: str, parts: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Return a message item."""
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": parts,
    }


def call_item(
    render: ResponseRender, index: int, call: tuple[str, str, str], status: str
) -> dict[str, Any]:
    """Return the item of a call, given as id, the name the model sees, and arguments."""
    call_id, model_name, arguments = call
    origin = render.tools.origin(model_name)
    item: dict[str, Any]
    if origin.is_custom:
        item = {
            "id": render.item_id("ctc_", index),
            "type": "custom_tool_call",
            "status": status,
            "call_id": call_id,
            "name": origin.name,
            "input": custom_input(arguments),
        }
    else:
        item = {
            "id": render.item_id("fc_", index),
            "type": "function_call",
            "status": status,
            "call_id": call_id,
            "name": origin.name,
            "arguments": arguments,
        }
    if origin.namespace is not None:
        item["namespace"] = origin.namespace
    return item


def custom_input(arguments: str) -> str:
    """Return the free text of a custom tool's call."""
    try:
        value = json.loads(arguments)[CUSTOM_INPUT]
    except (ValueError, KeyError, TypeError):
        return arguments
    return value if isinstance(value, str) else compact_json(value)


def text_part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a part of a message."""
    return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}


def reasoning_part(text: str) -> dict[str, Any]:
    """Return a part of reasoning."""
    return {"type": "reasoning_text", "text": text}


def summary_part(text: str) -> dict[str, Any]:
    """Return a part of a summary."""
    return {"type": "summary_text", "text": text}


def logprob_objects(render: ResponseRender, tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Return log-probabilities; none unless asked for."""
    if render.num_logprobs is None:
        return []
    content: list[dict[str, Any]] = chat_logprobs(tokens, render.num_logprobs)["content"]
    return content


# ---- keeping ------------------------------------------------------------------------------------


def remember(render: ResponseRender, body: Mapping[str, Any]) -> None:
    """Keep a complete answer, if the client did not forbid it."""
    if render.responses is None:
        return
    answer = read_items(tuple(body["output"]), render.tools, lambda _: None)  # our own: valid
    messages = (*render.messages, *answer)
    num_bytes = sum(len(m.content) + len(m.reasoning) + 200 for m in messages)
    num_bytes += len(compact_json(body)) + len(compact_json(render.input_items))
    render.responses.put(StoredResponse(body, messages, render.input_items, num_bytes))
