"""Finished answers validate: random walks under the mask, judged by the `jsonschema` package."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from jsonschema import validators

from colibri_engine.grammar import Constraint, GrammarCompiler
from colibri_protocol.messages import Grammar
from tests.engine.test_json_schema import ENFORCED
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer

NUM_ANSWERS = 8
MAX_TOKENS = 400
LONG_AFTER = 20  # tokens
BASE = np.zeros(VOCAB_SIZE, np.float32)
BASE[32:127] = 10.0  # readable, so that a failure can be read
BASE[list(b"\\")] = 0.0
ENDING = BASE.copy()
ENDING[list(b'"}]')] += 40.0
ENDING[list(b"0@")] += 10.0
ENDING[EOS] = 60.0

COLOR = {"$defs": {"Color": {"enum": ["red", "green", "blue"]}}}
FORMATS = (
    *("regex", "json-pointer", "relative-json-pointer", "uri-reference", "iri", "iri-reference"),
    *("uri-template", "idn-email", "idn-hostname", "date-time", "date", "time", "duration"),
    *("email", "hostname", "ipv4", "ipv6", "uri", "uuid"),
)
SCHEMAS: list[object] = [
    *({"type": "string", "format": name} for name in FORMATS),
    *({"type": "string", "format": name, "maxLength": 12} for name in ("regex", "uri-template")),
    {"$schema": "http://json-schema.org/draft-03/schema#", "type": "string", "format": "color"},
    {"type": "integer", "format": "uint8"},
    {"type": "array", "items": {"enum": [1, 1.0, "1", True]}, "uniqueItems": True},
    {"type": "array", "items": {"$ref": "#/$defs/Color"}, "uniqueItems": True, **COLOR},
    {
        "type": "object",
        "propertyNames": {"$ref": "#/$defs/Color"},
        "additionalProperties": {"type": "integer"},
        **COLOR,
    },
    {
        "type": "object",
        "patternProperties": {
            "^a": {"minimum": 3},
            "b$": {"type": "integer"},
            "^c[0-9]$": {"type": "null"},
        },
        "additionalProperties": False,
    },
    {
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "unevaluatedProperties": False,
    },
]


def answer(constraint: Constraint, random: np.random.Generator) -> str | None:
    """Return a finished answer, or None when it went on for too long."""
    text = bytearray()
    for num in range(MAX_TOKENS):
        row = (ENDING if num >= LONG_AFTER else BASE) + 8 * random.standard_normal(VOCAB_SIZE)
        token = int(np.argmax(constraint.masked(row.astype(np.float32))))
        constraint.accept(token)
        if token == EOS:
            return text.decode()
        text += ByteTokenizer().token_bytes(token)
        if constraint.is_complete:
            return text.decode()
    return None


@pytest.mark.parametrize("schema", [*SCHEMAS, *(row[0] for row in ENFORCED)])
def test_every_finished_answer_validates(schema: Any) -> None:  # noqa: ANN401
    tokenizer: Any = ByteTokenizer()
    compiler = GrammarCompiler(tokenizer, VOCAB_SIZE, frozenset({EOS}))
    grammar = Grammar("json_schema", json.dumps(schema))
    kind = validators.validator_for(schema)
    judge = kind(schema, format_checker=kind.FORMAT_CHECKER)
    random = np.random.default_rng(0)
    answers = [answer(compiler.compile(grammar), random) for _ in range(NUM_ANSWERS)]
    finished = [text for text in answers if text is not None]
    assert finished
    for text in finished:
        errors = [error.message for error in judge.iter_errors(json.loads(text))]
        assert errors == [], text
