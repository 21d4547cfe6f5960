"""The request fields of `/v1/responses`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNKNOWN_PARAMETER,
    UNSUPPORTED_PARAMETER,
    UNSUPPORTED_VALUE,
    Field,
    Kind,
    anything,
    boolean,
    checked_by,
    number,
    only,
    refusal,
    shown,
    whole,
    word,
)
from colibri_cli.gateway.dialects.responses_input import check_input
from colibri_cli.gateway.dialects.responses_schemas import (
    INPUT_SCHEMA,
    REASONING_SCHEMA,
    TEXT_SCHEMA,
    TOOL_CHOICE_SCHEMA,
    TOOLS_SCHEMA,
)
from colibri_protocol.limits import MAX_ALTERNATIVES, MAX_SLOT
from colibri_protocol.messages import Word

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARIES: Final = ("auto", "concise", "detailed")
PACKED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
# The rest concerns tools and content that do not exist here, so there is nothing to include.
_INCLUDABLE: Final = (
    PACKED_REASONING,
    LOGPROBS,
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
# Fields of chat completions, and what does their work here.
_OF_OTHER_APIS: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": f"include with {LOGPROBS}",
    **dict.fromkeys(("stop", "seed", "n", "logit_bias", "frequency_penalty", "presence_penalty")),
}
_VERBOSITIES: Final = ("low", "medium", "high")
_MAX_METADATA: Final = 16


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much the model reasons, and whether the client wants to read a summary."""

    effort: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class TextConfig:
    """Form and length of the text: the format as the client gave it, and the verbosity."""

    format: Any = None
    verbosity: str | None = None


def _check_reasoning(value: Any, path: str) -> Reasoning:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object, not {shown(value)}")
    effort = value.get("effort")
    if effort is not None:
        effort = word(EFFORTS).check(effort, f"{path}.effort")
    summary = value.get("summary") or value.get("generate_summary")
    if summary is not None:
        summary = word(SUMMARIES).check(summary, f"{path}.summary")
    return Reasoning(effort, summary)


def _check_text(value: Any, path: str) -> TextConfig:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object, not {shown(value)}")
    verbosity = value.get("verbosity")
    if verbosity is not None:
        verbosity = word(_VERBOSITIES).check(verbosity, f"{path}.verbosity")
    return TextConfig(value.get("format"), verbosity)


def _check_include(value: Any, path: str) -> frozenset[str]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be an array, not {shown(value)}", INVALID_VALUE)
    for index, name in enumerate(value):
        if name not in _INCLUDABLE:
            raise refusal(
                f"{path}.{index}",
                f"{path}.{index} must be one of {', '.join(_INCLUDABLE)}, not {shown(name)}",
                UNSUPPORTED_VALUE,
            )
    return frozenset(value)


def _check_metadata(value: Any, path: str) -> dict[str, str]:  # noqa: ANN401 - any JSON value
    is_good = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if not is_good or len(value) > _MAX_METADATA:
        raise refusal(path, f"{path} must be an object of at most {_MAX_METADATA} texts")
    return dict(value)


def _text(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    if not isinstance(value, str):
        raise refusal(path, f"{path} must be a text, not {shown(value)}")
    return value


def _refuse(value: Any, path: str) -> None:  # noqa: ANN401 - any JSON value
    del value
    raise refusal(path, f"{path} is not supported; leave it out", UNSUPPORTED_PARAMETER)


def _unknown(replacement: str | None) -> Kind:
    """Refuse a field of another API, naming the one that does its work in this one."""

    def check(value: Any, path: str) -> None:  # noqa: ANN401 - any JSON value
        del value
        advice = f"send {replacement}" if replacement else "leave it out"
        raise refusal(path, f"{path} is not a field of this API; {advice}", UNKNOWN_PARAMETER)

    return checked_by(check, {"type": "null"})


_ANY_TEXT: Final = checked_by(_text, {"type": "string"})
_UNSUPPORTED: Final = checked_by(_refuse, {"type": "null"})
_LATER: Final = anything().check  # checked where the whole body is known

RESPONSE_FIELDS: Final = (
    Field(name="model", kind=anything(), help="The served model or one of its aliases."),
    Field(
        name="input",
        kind=checked_by(check_input, INPUT_SCHEMA),
        help="A text, or messages, calls, their outputs and reasoning, oldest first.",
        is_required=True,
    ),
    Field(name="instructions", kind=_ANY_TEXT, help="Stands in front of the conversation."),
    Field(
        name="previous_response_id",
        kind=_ANY_TEXT,
        help="The answer this request goes on from; kept for a day while the server runs.",
    ),
    Field(name="store", kind=boolean(), help="Keep the answer.", default=True),
    Field(name="stream", kind=boolean(), help="Answer with events.", default=False),
    Field(name="stream_options", kind=anything(), help="Changes nothing."),
    Field(
        name="max_output_tokens",
        kind=whole(1),
        help="Most tokens to generate. Lowered to the server's limit, which is also the default.",
    ),
    Field(name="temperature", kind=number(0, 2), help="0 always takes the likeliest token."),
    Field(
        name="top_p",
        kind=number(0, 1, is_low_allowed=False),
        help="Sample from the likeliest tokens that add up to this probability.",
    ),
    Field(
        name="top_logprobs",
        kind=whole(0, MAX_ALTERNATIVES),
        help="Alternatives to report for every token.",
        needs=Word.LOGPROBS,
        neutral=(0,),
    ),
    Field(
        name="tools",
        kind=checked_by(_LATER, TOOLS_SCHEMA),
        help="Functions and custom tools the client runs; web_search is not offered to the model.",
    ),
    Field(
        name="tool_choice",
        kind=checked_by(_LATER, TOOL_CHOICE_SCHEMA),
        help="What to do with the tools; auto by default.",
    ),
    Field(
        name="parallel_tool_calls",
        kind=boolean(),
        help="Whether one answer may hold several calls.",
        default=True,
    ),
    Field(
        name="text",
        kind=checked_by(_check_text, TEXT_SCHEMA),
        help="Form of the answer, guaranteed where the engine announced grammars.",
    ),
    Field(
        name="reasoning",
        kind=checked_by(_check_reasoning, REASONING_SCHEMA),
        help="How much the model reasons; with a summary, reasoning is shown as such.",
    ),
    Field(
        name="include",
        kind=checked_by(_check_include, {"type": "array", "items": {"enum": list(_INCLUDABLE)}}),
        help="Further parts of the answer.",
        default=frozenset(),
    ),
    Field(
        name="metadata",
        kind=checked_by(
            _check_metadata,
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "maxProperties": _MAX_METADATA,
            },
        ),
        help="Repeated in the answer.",
    ),
    Field(
        name="cache_slot",
        kind=whole(0, MAX_SLOT),
        help="The slot that must answer; without it the server chooses by conversation.",
    ),
    Field(
        name="prompt_cache_key",
        kind=anything(),
        help="What the requests of one conversation share.",
    ),
    Field(name="user", kind=anything(), help="As prompt_cache_key."),
    Field(
        name="truncation",
        kind=word(("auto", "disabled")),
        help="Nothing is ever cut off: a prompt that is too long is refused.",
    ),
    Field(name="service_tier", kind=anything(), help="Changes nothing."),
    Field(name="background", kind=only(False), help="Not supported."),
    *(
        Field(name=name, kind=_UNSUPPORTED, help="Not supported.")
        for name in ("conversation", "prompt", "moderation", "context_management")
    ),
    *(
        Field(name=name, kind=_unknown(replacement), help="Not a field of this API.")
        for name, replacement in _OF_OTHER_APIS.items()
    ),
)
