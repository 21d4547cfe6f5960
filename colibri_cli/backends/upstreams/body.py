"""What is asked of an upstream server: a conversation and how to generate, as a JSON body.

Pure: the fields of the OpenAI API, and those of the server's kind. What the kind has no word for is
refused here, by name, and never left out.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.upstreams.kinds import COLI
from colibri_cli.errors import CapabilityMissing
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.backends.base import Generation, ToolUse
    from colibri_cli.backends.upstreams.kinds import UpstreamKind
    from colibri_cli.chat_formats.base import ChatMessage, Conversation

_STANDARD: Final = (
    "max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed",
)  # fmt: skip
_SPELLED: Final = {*_STANDARD, "logit_bias", "logprobs", "grammar"}  # written by code of their own
_DEFAULTS: Final = RequestOptions()


def chat_body(
    kind: UpstreamKind, model: str, conversation: Conversation, generation: Generation
) -> dict[str, Any]:
    """Return the body of a chat completion.

    Raises:
        CapabilityMissing: the kind has no word for something.
    """
    body = _body(kind, model, generation)
    body["messages"] = messages_of(conversation)
    if generation.options.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": generation.options.logprobs}
    if generation.tools is not None:
        body |= _tools(generation.tools)
    elif conversation.tools:
        body["tools"] = list(conversation.tools)
    if conversation.continues_last:
        if kind.prefill is None:
            raise _missing(kind, "messages", "continuing a last message of the assistant")
        body |= kind.prefill
    body |= _thinking(kind, conversation)
    if generation.thinking_budget is not None:
        if kind.budget is None:
            raise _missing(kind, "thinking_budget", "a limit on reasoning")
        body[kind.budget] = generation.thinking_budget
    return body


def text_body(
    kind: UpstreamKind, model: str, prompt: str, generation: Generation
) -> dict[str, Any]:
    """Return the body of a plain completion.

    Raises:
        CapabilityMissing: the kind has no word for something.
    """
    if generation.start:
        raise _missing(kind, "start", "control tokens before a text")
    body = {**_body(kind, model, generation), "prompt": prompt}
    if generation.options.logprobs is not None:
        body["logprobs"] = generation.options.logprobs
    return body


def messages_of(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the turns as the API writes them."""
    return [_message(message) for message in conversation.messages]


def _body(kind: UpstreamKind, model: str, generation: Generation) -> dict[str, Any]:
    options = generation.options
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= _options(kind, options)
    if options.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in options.logit_bias.items()}
    if options.grammar is not None:
        form = kind.forms.get(options.grammar.kind)
        if form is None:
            what = f"a constraint of the kind {options.grammar.kind}"
            raise _missing(kind, "grammar", what)
        body |= form(options.grammar.text)
    if generation.stop:
        body["stop"] = list(generation.stop)
    if kind is COLI:
        body |= _of_ours(generation)
    elif generation.is_stop_patient:
        raise _missing(kind, "x_colibri_ignore_leading_stop", "ignoring a leading stop text")
    elif generation.slot >= 0:
        raise _missing(kind, "cache_slot", "naming a slot")
    return body


def _options(kind: UpstreamKind, options: RequestOptions) -> dict[str, Any]:
    """Return the options that were set and are single values."""
    body: dict[str, Any] = {}
    for row in fields(options):
        value = getattr(options, row.name)
        if value == getattr(_DEFAULTS, row.name):
            continue
        if row.name in _STANDARD:
            body[row.name] = value
        elif row.name in kind.options:
            body[kind.options[row.name]] = list(value) if isinstance(value, tuple) else value
        elif row.name not in _SPELLED:
            raise _missing(kind, row.name, row.name)
    return body


def _of_ours(generation: Generation) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if generation.is_stop_patient:
        body["x_colibri_ignore_leading_stop"] = True
    if generation.slot >= 0:
        body["cache_slot"] = generation.slot
    return body


def _thinking(kind: UpstreamKind, conversation: Conversation) -> dict[str, Any]:
    """Return the wish for reasoning; without one that is left to the server."""
    thinking, effort = conversation.thinking, conversation.effort
    body: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    if thinking is None:
        return body
    if kind is COLI:
        return {**body, "enable_thinking": thinking}
    if kind.has_template_switch:
        # The two names that chat templates know it by; a template ignores what it does not read.
        return {**body, "chat_template_kwargs": {"enable_thinking": thinking, "thinking": thinking}}
    return body or {"reasoning_effort": "medium" if thinking else "none"}


def _tools(use: ToolUse) -> dict[str, Any]:
    declared = [{"type": "function", "function": dict(tool.declaration)} for tool in use.tools]
    # Of a named function only that one is offered, and some servers know the three words alone.
    choice = "required" if use.choice.mode == "named" else str(use.choice.mode)
    body: dict[str, Any] = {"tools": declared, "tool_choice": choice}
    return body if use.parallel else {**body, "parallel_tool_calls": False}


def _message(message: ChatMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _json(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        body["name"] = message.name
    return body


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _missing(kind: UpstreamKind, option: str, what: str) -> CapabilityMissing:
    return CapabilityMissing(
        f"{what} cannot be asked of an upstream server of the kind {kind.name}", option=option
    )
