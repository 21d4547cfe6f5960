"""Schemas are enforced wholly or refused: what a schema refuses is never a finished answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import BadOption
from colibri_engine.grammar import GrammarCompiler, GrammarFault
from colibri_protocol.messages import Grammar
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer

DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
ROW = np.zeros(VOCAB_SIZE, np.float32)


def compiler() -> GrammarCompiler:
    tokenizer: Any = ByteTokenizer()
    return GrammarCompiler(tokenizer, VOCAB_SIZE, frozenset({EOS}))


def is_answer(schema: object, value: object) -> bool:
    constraint = compiler().compile(Grammar("json_schema", json.dumps(schema)))
    try:
        for byte in json.dumps(value, separators=(",", ":")).encode():
            constraint.accept(byte)
    except GrammarFault:
        return False
    return bool(np.isfinite(constraint.masked(ROW)[EOS]))


def reason(schema: object) -> str:
    with pytest.raises(BadOption) as caught:
        compiler().compile(Grammar("json_schema", json.dumps(schema)))
    return caught.value.message


# Of the official suite (drafts 3 and 4), and of what later drafts added.
ENFORCED: list[tuple[object, list[object], list[object]]] = [
    ({"not": {"type": ["integer", "boolean"]}}, ["x", None], [1, True]),
    (
        {"not": {"type": "object", "properties": {"foo": {"type": "string"}}}},
        [1, {"foo": 1}],
        [{"foo": "bar"}, {}],
    ),
    ({"not": {"required": ["a"]}, "type": "object"}, [{"b": 1}], [{"a": 1}]),
    ({"not": {"not": {"type": "null"}}}, [None], [1]),
    ({"not": {"enum": [True, 3]}}, [False, 4, "x"], [True, 3]),
    ({"not": {"anyOf": [{"type": "string"}, {"minimum": 3}]}}, [2], ["x", 3]),
    ({"not": {"$ref": "#/$defs/text"}, "$defs": {"text": {"type": "string"}}}, [1], ["x"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, "x"], [3, 1.5]),
    ({"type": "string", "oneOf": [{"minLength": 2}, {"maxLength": 4}]}, ["a", "longer"], ["abc"]),
    ({"dependencies": {"bar": ["foo"]}}, [{}, {"foo": 1}, 3], [{"bar": 2}]),
    (
        {"dependencies": {"bar": {"properties": {"foo": {"type": "integer"}}}}},
        [{"foo": "x"}, {"foo": 2, "bar": 1}],
        [{"foo": "x", "bar": 1}],
    ),
    (
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": ["c"]}}},
        [{"b": 1}],
        [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "c": 1}],
    ),
    (
        {"if": {"type": "string"}, "then": {"maxLength": 2}, "else": {"type": "null"}},
        ["ab", None],
        ["abc", 1],
    ),
    ({"$schema": DRAFT_4, "minimum": 3, "exclusiveMinimum": True}, [3.5, "x"], [3, 1]),
    ({"$schema": DRAFT_4, "maximum": 2.5, "exclusiveMaximum": False}, [2.5], [3]),
    ({"maximum": 18446744073709551615}, [600], [18446744073709551616]),
    ({"$schema": DRAFT_3, "divisibleBy": 2}, [4, "x"], [3]),
    ({"$schema": DRAFT_3, "disallow": ["string", {"type": "object"}]}, [1], ["x", {}]),
    (
        {
            "$schema": DRAFT_3,
            "properties": {"a": {"required": True}},
            "extends": {"properties": {"b": {"type": "string", "required": True}}},
        },
        [{"a": 1, "b": "x"}],
        [{"a": 1}, {"b": "x"}, {"a": 1, "b": 2}],
    ),
    (
        {"$schema": DRAFT_3, "type": ["integer", {"properties": {"foo": {"type": "null"}}}]},
        [1, {"foo": None}],
        [{"foo": "x"}],
    ),
    ({"$schema": DRAFT_3, "type": "any"}, [1, "x", {}], []),
    ({"$schema": DRAFT_3, "dependencies": {"bar": "foo"}}, [{"foo": 1}], [{"bar": 1}]),
    ({"$schema": DRAFT_3, "format": "ip-address"}, ["127.0.0.1"], ["127.0.0.0.1"]),
    ({"$schema": DRAFT_3, "format": "time"}, ["08:30:06"], ["8:30", "08:30:06Z"]),
    ({"minProperties": 2, "required": ["a", "b"]}, [{"a": 1, "b": 1}], [{"a": 1}]),
    (True, [1, "x"], []),
    (
        {"patternProperties": {"a*": {"type": "integer"}, "aaa*": {"maximum": 20}}},
        [{"a": 5}, {"aa": 20}, {}, 3],
        [{"a": "x"}, {"aa": 31}, {"b": "x"}],
    ),
    (
        {
            "patternProperties": {
                "^a": {"minimum": 3},
                "b$": {"type": "integer"},
                "^c[x-z]$": {"const": "x"},
                "^c[0-9]$": {"const": 1},
            },
            "additionalProperties": False,
        },
        [{"a": 3}, {"c1": 1}, {"ac": 4, "c1": 1}],
        [{"a": 2}, {"ab": 3.5}, {"b": "x"}, {"c1": 2}, {"d": 1}, {"cx": "y"}],
    ),
    ({"uniqueItems": False}, [[1, 1]], []),
    ({"type": "string", "uniqueItems": True}, ["x"], [1]),
    ({"uniqueItems": True, "maxItems": 1}, [[], [1], "x"], [[1, 1]]),
    (
        {"items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": True},
        [[], ["b", "a", 1], ["a"], "x", {}],
        [["a", "a"], ["a", "b", "a"], ["c"], [1, 1]],
    ),
    (
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 1},
        [[True], [False, True]],
        [[], [True, True], "x", [1]],
    ),
    (
        {
            "type": "array",
            "items": {"$ref": "#/$defs/c"},
            "uniqueItems": True,
            "maxItems": 2,
            "$defs": {"c": {"enum": list("abcdefgh")}},
        },
        [["h", "a"], ["c"]],
        [["a", "a"], ["a", "b", "c"]],
    ),
    (
        {"propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"enum": ["x", "y"]}}},
        [{"x": 1}, {}, [1]],
        [{"z": 1}],
    ),
    (
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]{0,3}$", "description": "short"},
            "properties": {"ab": {"type": "integer"}, "toolong": {}},
        },
        [{"ab": 1}, {}],
        [{"ab": "x"}, {"A": 1}, {"abcd": 1}, {"toolong": 1}],
    ),
    ({"propertyNames": {"minLength": 2, "maxLength": 3}}, [{"ab": 1}], [{"a": 1}, {"abcd": 1}]),
    ({"propertyNames": False}, [{}, 1], [{"a": 1}]),
    ({"propertyNames": {"type": "integer"}}, [{}], [{"a": 1}]),
    ({"propertyNames": {"const": "k"}}, [{"k": 1}], [{"a": 1}]),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
    ({"prefixItems": [{}], "unevaluatedItems": {"type": "null"}}, [[1, None]], [[1, 2]]),
    (
        {"type": "string", "format": "regex"},
        ["^[a-z]+(x|y)?$", "a{2,}"],
        ["(", "[z-a]", "*", "a**"],
    ),
    ({"$schema": DRAFT_3, "format": "color"}, ["red", "#00ff7F", 1], ["#12", "reddish"]),
    ({"format": "int32", "minimum": 3}, [4, "x", 2147483647], [2, 2147483648]),
    ({"type": "integer", "format": "int64"}, [2**62], ["x"]),
    ({"type": "string", "format": "password"}, ["x"], [1]),
    (
        {"format": "uuid4"},
        ["0c2f26b2-5e0c-4c1b-9f1d-0123456789ab"],
        ["0c2f26b2-5e0c-1c1b-9f1d-0123456789ab"],
    ),
    ({"format": "byte", "maxLength": 4}, ["aGk=", ""], ["aGk", "a===", "aGkaGkaG"]),
    (
        {"format": "date"},
        ["2024-02-29", "2000-02-29", "1999-12-31", "2023-11-30", 1],
        ["2023-02-29", "1900-02-29", "2023-02-30", "2023-04-31", "0000-01-01", "2023-00-01"],
    ),
    ({"format": "time"}, ["23:59:59.5Z"], ["23:59:60Z", "12:00:00"]),
    (
        {"format": "date-time"},
        ["2024-02-29T01:02:03Z", "2023-02-28t01:02:03.5+01:00"],
        ["2023-02-29T01:02:03Z", "2023-02-28T01:02:60Z", "0000-01-01T01:02:03Z"],
    ),
    ({"format": "iri"}, ["http://a.b/c"], ["a b"]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), ENFORCED)
def test_what_the_schema_refuses_is_no_answer(
    schema: object, valid: list[object], invalid: list[object]
) -> None:
    assert [value for value in valid if not is_answer(schema, value)] == []
    assert [value for value in invalid if is_answer(schema, value)] == []


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"uniqueItems": True}, "uniqueItems"),
        ({"format": "colour"}, "colour"),
        ({"uniqueItems": True, "items": {"enum": list("abcdef")}}, "'maxItems'"),
        ({"uniqueItems": True, "items": {"enum": list(range(2000))}}, "uniqueItems"),
        (
            {"uniqueItems": True, "prefixItems": [{"enum": [1]}], "items": {"enum": [1]}},
            "uniqueItems",
        ),
        ({"propertyNames": {"format": "email"}}, "'propertyNames' with 'format'"),
        ({"propertyNames": {"pattern": "^a", "maxLength": 3}}, "'propertyNames' with both"),
        ({"propertyNames": 3}, "propertyNames"),
        ({"allOf": [{}], "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"if": {"type": "null"}, "then": {}, "unevaluatedItems": False}, "unevaluatedItems"),
        ({"$ref": "http://localhost:1234/integer.json"}, "integer.json"),
        ({"patternProperties": {f"a{n}*": {} for n in range(70)}}, "disjoint"),
        ({"not": {"multipleOf": 2}}, "'not' cannot be enforced"),
        ({"if": {"format": "date"}, "then": {"minLength": 1}}, "'if' cannot be enforced"),
        ({"minProperties": 2}, "minProperties"),
        ({"not": {}}, "nsatisfiable"),
        (False, "nsatisfiable"),
        ({"minimum": float("nan")}, "compiled"),
        ({"dependencies": 3}, "dependencies"),
        ({"not": 3}, "neither an object"),
        ({"minimum": 10**30}, "compiled"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: object, word: str) -> None:
    assert word in reason(schema)


def test_clients_cannot_loosen_the_compiler() -> None:
    loose = {"x-guidance": {"lenient": True, "coerce_one_of": True}}
    assert "uniqueItems" in reason({**loose, "uniqueItems": True})
    overlapping = {"oneOf": [{"type": "integer"}, {"minimum": 2}]}
    assert not is_answer({**loose, **overlapping}, 3)


def test_schemas_that_explode_are_refused() -> None:
    parts: dict[str, Any] = {
        f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 3} for n in range(20)
    }
    assert "too large" in reason({"not": {"$ref": "#/$defs/s0"}, "$defs": parts})


def test_schemas_nested_too_deeply_are_refused() -> None:
    text = '{"not":' * 900 + "{}" + "}" * 900
    with pytest.raises(BadOption):
        compiler().compile(Grammar("json_schema", text))


def test_references_in_a_circle_end() -> None:
    circle = {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
    assert "'not' cannot be enforced" in reason(circle)
