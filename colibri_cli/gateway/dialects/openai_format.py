"""OpenAI `response_format` → the constraint on an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import compact_json, has_nul
from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNSUPPORTED_PARAMETER,
    UNSUPPORTED_VALUE,
    refusal,
    shown,
)
from colibri_cli.gateway.turns import ResponseFormat
from colibri_protocol.limits import MAX_GRAMMAR_BYTES
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served

_PARAM: Final = "response_format"
# type → the member that holds its text
_TEXT_MEMBERS: Final = {"gbnf": "grammar", "lark": "grammar", "regex": "pattern"}
# What an engine of the baseline takes as a draft; only this family reads it there.
_DRAFT_KINDS: Final = ("json_object", "json_schema", "gbnf")
_DRAFT_FAMILY: Final = "glm"


def _text_member(name: str) -> dict[str, Any]:
    return {"type": "string", "pattern": "\\S", "description": f"The {name}, up to 1 MiB."}


RESPONSE_FORMAT_SCHEMA: Final[Mapping[str, Any]] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["text", "json_object"]}},
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {
                    "type": "object",
                    "required": ["schema"],
                    "properties": {
                        "name": {},
                        "schema": {"type": "object"},
                        "strict": {"type": ["boolean", "null"]},
                    },
                },
            },
        },
        *(
            {
                "type": "object",
                "required": ["type", member],
                "properties": {"type": {"const": kind}, member: _text_member(member)},
            }
            for kind, member in _TEXT_MEMBERS.items()
        ),
    ]
}


def parse_response_format(value: Any, served: Served) -> ResponseFormat | None:  # noqa: ANN401
    """Return the constraint a `response_format` field asks for.

    Raises:
        HttpError: 400 for a form that is unknown, incomplete, or beyond the engine.
    """
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise _invalid(f"must be an object with a type, not {shown(value)}")
    if kind == "text":
        return None
    if kind == "json_object":
        wanted, is_strict = ResponseFormat(kind), False
    elif kind == "json_schema":
        wanted, is_strict = _json_schema(value.get("json_schema"))
    elif kind in _TEXT_MEMBERS:
        wanted, is_strict = _grammar(value, kind), False
    else:
        known = ", ".join(("text", "json_object", "json_schema", *_TEXT_MEMBERS))
        raise refusal(
            _PARAM,
            f"{_PARAM} has the type {shown(kind)}; known types: {known}",
            UNSUPPORTED_VALUE,
        )
    _check_engine(wanted, served, is_strict=is_strict)
    return wanted


def _json_schema(value: Any) -> tuple[ResponseFormat, bool]:  # noqa: ANN401 - any JSON value
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(schema, dict):
        raise _invalid("of the type json_schema needs an object json_schema.schema")
    strict = value.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _invalid(f"json_schema.strict must be true or false, not {shown(strict)}")
    if has_nul(schema):
        raise _nul()
    return ResponseFormat("json_schema", _checked_size(compact_json(schema))), bool(strict)


def _grammar(value: dict[str, Any], kind: str) -> ResponseFormat:
    member = _TEXT_MEMBERS[kind]
    text = value.get(member)
    if not isinstance(text, str) or not text.strip():
        raise _invalid(f"of the type {kind} needs a text in {member} that is not blank")
    if "\0" in text:
        raise _nul()
    return ResponseFormat(kind, _checked_size(text))


def _checked_size(text: str) -> str:
    size = len(text.encode())
    if size > MAX_GRAMMAR_BYTES:
        raise _invalid(f"has {size} bytes, more than the limit of {MAX_GRAMMAR_BYTES}")
    return text


def _check_engine(wanted: ResponseFormat, served: Served, *, is_strict: bool) -> None:
    if Word.GRAMMAR in served.words:
        return
    is_draft = not served.words and served.family == _DRAFT_FAMILY and wanted.kind in _DRAFT_KINDS
    if not is_draft:
        raise refusal(
            _PARAM,
            f"{_PARAM} of the type {wanted.kind} is not supported by the running engine, which"
            " cannot constrain its answers; leave it out and ask for the form in a message",
            UNSUPPORTED_PARAMETER,
        )
    if is_strict:
        raise refusal(
            _PARAM,
            f"{_PARAM} with strict: true cannot be guaranteed by the running engine; leave strict"
            " out to use the schema as help for drafting",
            UNSUPPORTED_PARAMETER,
        )


def _invalid(what: str) -> Exception:
    return refusal(_PARAM, f"{_PARAM} {what}", INVALID_VALUE)


def _nul() -> Exception:
    return refusal(_PARAM, f"{_PARAM} holds a NUL character; remove it")
