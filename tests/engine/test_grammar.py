"""Grammars really constrain: masks, ends, refusals with a reason, and whole replies."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import BadOption
from colibri_engine.grammar import Constraint, GrammarCompiler, GrammarFault
from colibri_protocol.messages import Finished, FinishReason, Grammar, RequestFailed
from tests.engine.worker_rig import WorkerRig
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer

ROW = np.linspace(0.0, 1.0, VOCAB_SIZE, dtype=np.float32)


def compiler() -> GrammarCompiler:
    tokenizer: Any = ByteTokenizer()
    return GrammarCompiler(tokenizer, VOCAB_SIZE, frozenset({EOS}))


def allowed(constraint: Constraint) -> set[int]:
    masked = constraint.masked(ROW)
    kept = np.flatnonzero(np.isfinite(masked))
    np.testing.assert_array_equal(masked[kept], ROW[kept])
    return set(kept.tolist())


def after(constraint: Constraint, text: bytes) -> set[int]:
    for byte in text:
        constraint.accept(byte)
    return allowed(constraint)


def ids(characters: bytes) -> set[int]:
    return set(characters)


def test_only_what_the_grammar_allows_keeps_its_logit() -> None:
    constraint = compiler().compile(Grammar("regex", "a[bc]+d?"))
    assert allowed(constraint) == ids(b"a")
    assert after(constraint, b"a") == ids(b"bc")
    assert after(constraint, b"b") == ids(b"bcd") | {EOS}
    assert after(constraint, b"d") == {EOS}
    assert constraint.is_complete


@pytest.mark.parametrize(
    ("grammar", "start", "inside", "expected"),
    [
        (Grammar("lark", 'start: "yes" | "no"'), b"yn", b"y", b"e"),
        (Grammar("gbnf", 'root ::= "yes" | "no"'), b"yn", b"n", b"o"),
        (Grammar("json_schema", '{"type": "boolean"}'), b"tf", b"t", b"r"),
    ],
)
def test_every_kind_of_grammar(
    grammar: Grammar, start: bytes, inside: bytes, expected: bytes
) -> None:
    constraint = compiler().compile(grammar)
    assert allowed(constraint) == ids(start)
    assert after(constraint, inside) == ids(expected)


@pytest.mark.parametrize(
    ("grammar", "word"),
    [
        (Grammar("regex", "("), "regex"),
        (Grammar("lark", "start: nothing_of_the_kind"), "nothing_of_the_kind"),
        (Grammar("gbnf", "root ::= ("), "GBNF"),
        (Grammar("gbnf", 'start ::= "a"'), "start"),
        (Grammar("gbnf", "root ::= missing"), "missing"),
        (Grammar("json_schema", "{"), "JSON"),
        (Grammar("json_schema", "3"), "object"),
        (Grammar("json_schema", '{"type": "no such type"}'), "no such type"),
        (Grammar("yacc", "x"), "yacc"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(grammar: Grammar, word: str) -> None:
    with pytest.raises(BadOption) as caught:
        compiler().compile(grammar)
    assert caught.value.name == "grammar"
    assert word in caught.value.message
    assert "\n" not in caught.value.message


NOT_TEN = '{"type": "integer", "not": {"minimum": 10}}'


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (f"start: %json {NOT_TEN}", b"9", b"12"),
        (f'start: "a" r | "b"\nr: %json {NOT_TEN} "!"', b"a9!", b"a12!"),
        (
            f'// %json {{"not": 3}}\nstart: "%json {{" r // "\nr: %json {NOT_TEN}',
            b"%json {9",
            b"12",
        ),
        (f"start: /%json {{1}}\\// r\nr: %json {NOT_TEN}", b"%json /9", b"%json /12"),
    ],
)
def test_schemas_inside_a_grammar_are_enforced_as_wholly(
    text: str, right: bytes, wrong: bytes
) -> None:
    assert EOS in after(compiler().compile(Grammar("lark", text)), right)
    with pytest.raises(GrammarFault):
        after(compiler().compile(Grammar("lark", text)), wrong)


def test_a_schema_inside_a_grammar_that_cannot_be_enforced_is_refused_unless_it_is_lenient() -> (
    None
):
    schema: dict[str, object] = {"uniqueItems": True}
    with pytest.raises(BadOption, match="uniqueItems"):
        compiler().compile(Grammar("lark", f"start: %json {json.dumps(schema)}"))
    schema["x-guidance"] = {"lenient": True}
    constraint = compiler().compile(Grammar("lark", f"start: %json {json.dumps(schema)}"))
    assert EOS in after(constraint, b"{}")


@pytest.mark.parametrize(
    "text", ["start: %json {", "start: %json", "start: %json 3", "start: %json []"]
)
def test_what_is_no_schema_inside_a_grammar_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        compiler().compile(Grammar("lark", text))


def test_overlapping_cases_inside_a_grammar_exclude_each_other() -> None:
    text = 'start: %json {"oneOf": [{"type": "integer"}, {"minimum": 2}]}'
    assert EOS in after(compiler().compile(Grammar("lark", text)), b"1")
    with pytest.raises(GrammarFault):
        after(compiler().compile(Grammar("lark", text)), b"3 ")


def test_a_token_that_may_not_follow_is_a_fault() -> None:
    constraint = compiler().compile(Grammar("regex", "a"))
    with pytest.raises(GrammarFault):
        constraint.accept(ord("b"))


def test_replies_follow_their_grammar_side_by_side_with_free_ones() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}},
        "required": ["n"],
        "additionalProperties": False,
    }
    with WorkerRig(num_slots=2) as rig:
        free = rig.submit("hello", max_tokens=8)
        bound = rig.submit(
            "hello", max_tokens=60, grammar=Grammar("json_schema", json.dumps(schema))
        )
        rig.wait_for(Finished, free)
        assert rig.wait_for(Finished, bound).finish is FinishReason.STOP
        assert json.loads(rig.data(bound))["n"] in {3, 4, 5}


def test_a_refused_grammar_leaves_the_slot_free() -> None:
    with WorkerRig() as rig:
        rig.submit("hello", grammar=Grammar("regex", "("))
        refusal = rig.wait_for(RequestFailed)
        assert refusal.code == "BAD_REQUEST"
        assert "grammar" in refusal.detail
        rig.submit("hello", max_tokens=2)
        assert rig.wait_for(Finished).completion_tokens <= 2


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("json_schema", '{"$ref": "#"}'),
        Grammar("json_schema", '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}'),
        Grammar("regex", r"[^\s\S]"),
    ],
)
def test_a_grammar_without_any_text_is_refused(grammar: Grammar) -> None:
    with pytest.raises(BadOption, match=r"no answer can begin: .*matches nothing"):
        compiler().compile(grammar)


def test_a_grammar_that_grows_beyond_its_bounds_is_the_fault_of_the_request() -> None:
    pattern = "a{2,1000}"
    for _ in range(7):
        pattern = f"({pattern}){{2,1000}}"
    with WorkerRig() as rig:
        rig.submit("hello", max_tokens=200, grammar=Grammar("regex", pattern))
        refusal = rig.wait_for(RequestFailed)
        assert refusal.code == "BAD_REQUEST"
        assert refusal.detail.startswith("grammar: it cannot go on: ")
        assert "state" not in refusal.detail
        rig.submit("hello", max_tokens=2)
        assert rig.wait_for(Finished).completion_tokens <= 2
