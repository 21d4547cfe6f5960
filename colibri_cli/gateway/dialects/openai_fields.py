"""The request fields of `/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

from typing import Any, Final

from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNSUPPORTED_VALUE,
    Field,
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
from colibri_cli.gateway.dialects.openai_format import RESPONSE_FORMAT_SCHEMA
from colibri_cli.gateway.dialects.openai_messages import MESSAGES_SCHEMA
from colibri_cli.gateway.dialects.openai_tools import TOOL_CHOICE_SCHEMA, TOOLS_SCHEMA
from colibri_protocol.limits import MAX_ALTERNATIVES, MAX_LOGIT_BIAS, MAX_SLOT
from colibri_protocol.messages import Word

MAX_STOPS: Final = 4
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MAX_TOKEN_ID: Final = 2**31 - 1


def _check_stop(value: Any, path: str) -> tuple[str, ...]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        value = [value]
        paths = [path]
    elif isinstance(value, list):
        paths = [f"{path}.{index}" for index in range(len(value))]
    else:
        raise refusal(
            path, f"{path} must be a text or an array of texts, not {shown(value)}", INVALID_VALUE
        )
    if not 1 <= len(value) <= MAX_STOPS:
        raise refusal(path, f"{path} takes 1 to {MAX_STOPS} texts, not {len(value)}", INVALID_VALUE)
    for text, where in zip(value, paths, strict=True):
        if not isinstance(text, str) or not text:
            what = "an empty text" if text == "" else shown(text)
            raise refusal(where, f"{where} must be a text, not {what}", INVALID_VALUE)
    return tuple(value)


def _check_stream_options(value: Any, path: str) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether usage is wanted in the stream."""
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object, not {shown(value)}")
    for name in ("include_usage", "include_obfuscation"):
        if not isinstance(value.get(name) or False, bool):
            raise refusal(path, f"{path}.{name} must be true or false, not {shown(value[name])}")
    return bool(value.get("include_usage"))


def _check_logit_bias(value: Any, path: str) -> dict[int, float]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object of token ids, not {shown(value)}")
    if len(value) > MAX_LOGIT_BIAS:
        raise refusal(path, f"{path} takes at most {MAX_LOGIT_BIAS} tokens, not {len(value)}")
    bias: dict[int, float] = {}
    for token, amount in value.items():
        is_id = token.isascii() and token.isdigit() and len(token) <= 10
        if not is_id or int(token) > _MAX_TOKEN_ID:
            raise refusal(path, f"{path} names tokens by their decimal id, not {shown(token)}")
        if int(token) in bias:
            raise refusal(path, f"{path} names the token {int(token)} twice")
        bias[int(token)] = _BIAS.check(amount, path)
    return bias


def _check_modalities(value: Any, path: str) -> tuple[str, ...]:  # noqa: ANN401 - any JSON value
    if value != ["text"]:
        raise refusal(path, f"{path}: only text can be made; leave it out", "unsupported_parameter")
    return ("text",)


def _check_prompt(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    if not isinstance(value, str) or not value:
        what = "an empty text" if value == "" else shown(value)
        raise refusal(path, f"{path} must be one text of at least one character, not {what}")
    if "\0" in value:
        raise refusal(path, f"{path} holds a NUL character; remove it")
    return value


_BIAS: Final = number(-100, 100)
_STOP: Final = checked_by(
    _check_stop,
    {
        "oneOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "maxItems": MAX_STOPS,
            },
        ]
    },
)
_STREAM_OPTIONS: Final = checked_by(
    _check_stream_options,
    {
        "type": "object",
        "properties": {
            "include_usage": {"type": ["boolean", "null"]},
            "include_obfuscation": {"type": ["boolean", "null"]},
        },
    },
)
_LOGIT_BIAS: Final = checked_by(
    _check_logit_bias,
    {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,10}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        "maxProperties": MAX_LOGIT_BIAS,
    },
)

# Checked here or where the whole body is known; the schema is the row's in both cases.
_LATER = anything().check

_COMMON: Final = (
    Field(name="model", kind=anything(), help="The served model or one of its aliases."),
    Field(
        name="max_completion_tokens",
        kind=whole(1),
        help="Most tokens to generate; wins over max_tokens. Lowered to the server's limit.",
    ),
    Field(
        name="max_tokens",
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
        name="top_k",
        kind=whole(-1, _MAX_TOKEN_ID),
        help="Sample from so many tokens; 0 and -1 are off.",
        needs=Word.OPTIONS,
        neutral=(0, -1),
    ),
    Field(
        name="min_p",
        kind=number(0, 1),
        help="Drop tokens below this share of the likeliest one's probability.",
        needs=Word.OPTIONS,
        neutral=(0,),
    ),
    Field(
        name="frequency_penalty",
        kind=number(-2, 2),
        help="Lowers a token's logit by this for each time it was generated.",
        needs=Word.OPTIONS,
        neutral=(0,),
    ),
    Field(
        name="presence_penalty",
        kind=number(-2, 2),
        help="Lowers a token's logit by this once it was generated.",
        needs=Word.OPTIONS,
        neutral=(0,),
    ),
    Field(
        name="repetition_penalty",
        kind=number(0, 10, is_low_allowed=False),
        help="Divides the positive logits of tokens already seen.",
        needs=Word.OPTIONS,
        neutral=(1,),
    ),
    Field(
        name="logit_bias",
        kind=_LOGIT_BIAS,
        help="Token ids and what is added to their logits.",
        needs=Word.OPTIONS,
        neutral=({},),
    ),
    Field(
        name="seed",
        kind=whole(-(2**63), 2**64 - 1),
        help="Equal requests with equal seeds get equal answers.",
        needs=Word.OPTIONS,
    ),
    Field(
        name="n",
        kind=whole(1, MAX_SLOT + 1, code=UNSUPPORTED_VALUE),
        help="Answers wanted, at most as many as the server has slots.",
        default=1,
    ),
    Field(name="stop", kind=_STOP, help="Texts that end the answer; they are not part of it."),
    Field(
        name="x_colibri_ignore_leading_stop",
        kind=boolean(INVALID_VALUE),
        help="Stop texts before the first visible character are dropped instead of ending.",
        default=False,
    ),
    Field(name="stream", kind=boolean(), help="Answer as an event stream.", default=False),
    Field(
        name="stream_options",
        kind=_STREAM_OPTIONS,
        help="Only with stream: true.",
    ),
    Field(
        name="cache_slot",
        kind=whole(0, MAX_SLOT),
        help="The slot that must answer; without it the server chooses by conversation.",
    ),
    Field(
        name="response_format",
        kind=checked_by(_LATER, RESPONSE_FORMAT_SCHEMA),
        help=(
            "The form the answer must have, guaranteed where the engine announced grammars."
            " An engine that speaks the baseline alone takes json_object, json_schema (not strict)"
            " and gbnf as help for drafting, which does not constrain the answer."
        ),
    ),
    Field(
        name="x_colibri_telemetry",
        kind=boolean(),
        help="Adds figures of the turn under `colibri`.",
        default=False,
    ),
    Field(
        name="prompt_cache_key",
        kind=anything(),
        help="What the requests of one conversation share.",
    ),
    Field(name="user", kind=anything(), help="As prompt_cache_key."),
    Field(name="metadata", kind=anything(), help="Its user_id: as prompt_cache_key."),
    Field(name="store", kind=anything(), help="Changes nothing."),
    Field(name="service_tier", kind=anything(), help="Changes nothing."),
)

CHAT_FIELDS: Final = (
    Field(
        name="messages",
        kind=checked_by(_LATER, MESSAGES_SCHEMA),
        help="The conversation, oldest first.",
        is_required=True,
    ),
    *_COMMON,
    Field(
        name="logprobs",
        kind=boolean(),
        help="Report the log-probability of every token.",
        default=False,
        needs=Word.LOGPROBS,
        neutral=(False,),
    ),
    Field(
        name="top_logprobs",
        kind=whole(0, MAX_ALTERNATIVES),
        help="Alternatives to report for every token; only with logprobs: true.",
        needs=Word.LOGPROBS,
        neutral=(0,),
    ),
    Field(name="tools", kind=checked_by(_LATER, TOOLS_SCHEMA), help="Functions to call."),
    Field(
        name="functions",
        kind=checked_by(_LATER, TOOLS_SCHEMA),
        help="Older name of tools; used when tools is empty or absent.",
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
        name="enable_thinking",
        kind=boolean(),
        help="Whether the model reasons before it answers.",
    ),
    Field(
        name="reasoning_effort",
        kind=word(EFFORTS),
        help="How much the model reasons, where its format knows levels; none turns it off.",
    ),
    Field(
        name="modalities",
        kind=checked_by(_check_modalities, {"const": ["text"]}),
        help="Text is all there is.",
    ),
    Field(name="audio", kind=only(), help="Not supported."),
    Field(name="web_search_options", kind=only(), help="Not supported."),
)

COMPLETION_FIELDS: Final = (
    Field(
        name="prompt",
        kind=checked_by(_check_prompt, {"type": "string", "minLength": 1}),
        help="The text to continue, taken as it is.",
        is_required=True,
    ),
    *_COMMON,
    Field(
        name="logprobs",
        kind=whole(0, MAX_ALTERNATIVES),
        help="Report the log-probability of every token and of so many alternatives.",
        needs=Word.LOGPROBS,
    ),
    Field(name="best_of", kind=only(1), help="Not supported beyond 1."),
    Field(name="echo", kind=only(False), help="Not supported."),
    Field(name="suffix", kind=only(""), help="Not supported."),
)
