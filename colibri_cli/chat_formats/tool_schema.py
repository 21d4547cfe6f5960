"""Types of arguments that a model wrote as plain text, by the tool's declared JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from typing import Any, Final, NoReturn

_MAX_REFERENCES: Final = 16  # one after the other
_MAX_REFERENCE: Final = 1024  # characters
_MAX_BRANCHES: Final = 64  # looked at for one type
_JSON_TYPES: Final = frozenset({"boolean", "object", "array", "null"})
_NUMBER_TYPES: Final = frozenset({"integer", "number"})


class ValueKind(Enum):
    """How the text of a value is read."""

    TEXT = "text"  # verbatim, whatever it looks like
    NUMBER = "number"  # as JSON if it is JSON, but `true` and `false` are text
    JSON = "json"  # as JSON if it is JSON, else text


def value_kind(parameters: Mapping[str, Any], name: str) -> ValueKind:
    """Return how the value of one parameter is read.

    Args:
        parameters: The tool's object schema.
        name: The parameter; an undeclared one is JSON if it can be.
    """
    schema = declared_value(parameters, name)
    if schema is None:
        return ValueKind.JSON
    word = _type_word(schema, parameters)
    if word is None or word in _JSON_TYPES:
        return ValueKind.JSON
    return ValueKind.NUMBER if word in _NUMBER_TYPES else ValueKind.TEXT


def value_json(text: str, kind: ValueKind) -> str:
    """Return a value as compact JSON text."""
    if kind is not ValueKind.TEXT:
        try:
            value = json.loads(text, parse_constant=_refuse)
            if not (kind is ValueKind.NUMBER and isinstance(value, bool)):
                return compact_json(value)
        except (ValueError, RecursionError):
            pass  # no JSON, or JSON with a number that JSON cannot say again: it stays text
    return compact_json(text)


def compact_json(value: object) -> str:
    """Return JSON without spaces, non-ASCII as it is unless it is no valid Unicode.

    Raises:
        ValueError: the value holds an infinite number.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, from an escape in the model's text
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def required_names(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters a call cannot lack."""
    names = parameters.get("required")
    return tuple(n for n in names if isinstance(n, str)) if isinstance(names, list | tuple) else ()


def declared_value(parameters: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the schema of one parameter, or None if there is none."""
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    return _resolved(schema, parameters) if isinstance(schema, Mapping) else None


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow local references; one that leads nowhere allows anything."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target = _target(reference, root)
        if target is None:
            return {}
        schema = target
    return {}


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not reference.startswith("#") or len(reference) > _MAX_REFERENCE:
        return None
    node: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if _is_object(node) else None
    return node if _is_object(node) else None


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _type_word(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    """Return the type a value is read as, or None if the schema leaves it open."""
    waiting = [schema]  # depth first; branches that refer to each other come again and again
    for _ in range(_MAX_BRANCHES):
        if not waiting:
            break
        branch = waiting.pop()
        word = _own_word(branch)
        if word is not None and (word != "null" or branch is schema):
            return word
        if word is None:
            waiting += reversed([_resolved(inner, root) for inner in _branches(branch)])
    return None


def _own_word(schema: Mapping[str, Any]) -> str | None:
    word = schema.get("type")
    if isinstance(word, list | tuple):
        return next((str(entry) for entry in word if entry != "null"), "null")
    if word is not None:
        return str(word)
    constants = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(constants, list | tuple) and constants:
        texts = [isinstance(value, str) for value in constants if value is not None]
        return "string" if texts and all(texts) else "object"
    return None


def _branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf")]
    found = (inner for one in lists if isinstance(one, list | tuple) for inner in one)
    return list(islice((inner for inner in found if isinstance(inner, Mapping)), _MAX_BRANCHES))


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
