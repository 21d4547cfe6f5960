"""How the text of a value is read, by the declared type."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colibri_cli.chat_formats.tool_schema import (
    ValueKind,
    required_names,
    value_json,
    value_kind,
)

SCHEMA: dict[str, Any] = {
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "maybe": {"type": ["null", "string"]},
        "maybe_count": {"type": ["integer", "null"]},
        "optional": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "one": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "choice": {"enum": ["a", "b", None]},
        "level": {"enum": [1, 2]},
        "fixed": {"const": "x"},
        "named": {"$ref": "#/$defs/Name"},
        "nested": {"allOf": [{"$ref": "#/$defs/Optional"}]},
        "loop": {"$ref": "#/$defs/Loop"},
        "lost": {"$ref": "#/$defs/Nowhere"},
        "remote": {"$ref": "https://example.com/x"},
        "strange": {"type": "date"},
        "open": {},
        "broken": True,
    },
    "$defs": {
        "Name": {"type": "string"},
        "Optional": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Name"}]},
        "Loop": {"$ref": "#/$defs/Loop"},
    },
    "required": ["text", "count"],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("text", ValueKind.TEXT), ("count", ValueKind.NUMBER), ("ratio", ValueKind.NUMBER),
        ("flag", ValueKind.JSON), ("items", ValueKind.JSON), ("maybe", ValueKind.TEXT),
        ("maybe_count", ValueKind.NUMBER), ("optional", ValueKind.TEXT),
        ("one", ValueKind.NUMBER), ("choice", ValueKind.TEXT), ("level", ValueKind.JSON),
        ("fixed", ValueKind.TEXT), ("named", ValueKind.TEXT), ("nested", ValueKind.TEXT),
        ("loop", ValueKind.JSON), ("lost", ValueKind.JSON), ("remote", ValueKind.JSON),
        ("strange", ValueKind.TEXT), ("open", ValueKind.JSON), ("broken", ValueKind.JSON),
        ("undeclared", ValueKind.JSON),
    ],
)  # fmt: skip
def test_the_declared_type_decides(name: str, kind: ValueKind) -> None:
    assert value_kind(SCHEMA, name) is kind


def test_branches_that_refer_to_themselves_take_no_time() -> None:
    again = {"$ref": "#/$defs/Many"}
    schema = {
        "properties": {"many": again, "last": {"anyOf": [again] * 3 + [{"type": "integer"}]}},
        "$defs": {"Many": {"anyOf": [again] * 8}},
    }
    # 8^16 branches, were each looked at to the end
    assert value_kind(schema, "many") is ValueKind.JSON
    assert value_kind(schema, "last") is ValueKind.JSON
    endless = {"properties": {"x": {"$ref": "#" + "/properties" * 100_000}}}
    assert value_kind(endless, "x") is ValueKind.JSON


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("12345", ValueKind.TEXT, '"12345"'),
        ("true", ValueKind.TEXT, '"true"'),
        ('a "b"\n', ValueKind.TEXT, r'"a \"b\"\n"'),
        (" 3 ", ValueKind.NUMBER, "3"),
        ("true", ValueKind.NUMBER, '"true"'),
        ("three", ValueKind.NUMBER, '"three"'),
        ('["a", 1]', ValueKind.JSON, '["a",1]'),
        ("true", ValueKind.JSON, "true"),
        ("{broken", ValueKind.JSON, '"{broken"'),
        ("NaN", ValueKind.NUMBER, '"NaN"'),
        ("1e999", ValueKind.NUMBER, '"1e999"'),
        ("9" * 5000, ValueKind.NUMBER, '"' + "9" * 5000 + '"'),
        ("é世", ValueKind.TEXT, '"é世"'),
    ],
)
def test_a_value_as_json(text: str, kind: ValueKind, expected: str) -> None:
    assert value_json(text, kind) == expected


def test_hostile_values_stay_text() -> None:
    deep = "[" * 100_000
    assert json.loads(value_json(deep, ValueKind.JSON)) == deep
    half = value_json(r'"\ud800"', ValueKind.JSON)
    assert half.encode() == rb'"\ud800"'


def test_required_names() -> None:
    assert required_names(SCHEMA) == ("text", "count")
    assert required_names({}) == required_names({"required": True}) == ()
    assert required_names({"required": [1, "a"]}) == ("a",)
