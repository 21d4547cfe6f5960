"""Prompts and grammars beside the steps: who waits for whom."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from colibri_engine.errors import BadOption
from colibri_engine.intake import Encoded, Intake
from colibri_protocol.limits import ANY_SLOT
from colibri_protocol.messages import (
    Grammar,
    RequestOptions,
    Segment,
    SegmentKind,
    SubmitExtended,
)
from tests.fakes.byte_tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_engine.grammar import Constraint

LIMIT_S = 30.0


class SlowCompiler:
    """Compiles nothing before it may, and refuses what says so."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.texts: list[str] = []

    def compile_loosely(self, text: str) -> Constraint:
        return self.compile(Grammar("gbnf", text))

    def compile(self, grammar: Grammar) -> Constraint:
        self.texts.append(grammar.text)
        self.has_begun.set()
        assert self.may_go_on.wait(LIMIT_S)
        if grammar.text == "bad":
            raise BadOption("grammar", "it is bad")
        return cast("Constraint", grammar.text)


def submit(number: int, grammar: str | None = None) -> SubmitExtended:
    options = RequestOptions(grammar=None if grammar is None else Grammar("regex", grammar))
    return SubmitExtended(number, ANY_SLOT, options, (Segment(SegmentKind.TEXT, "abc"),))


def test_what_has_no_grammar_does_not_wait_for_one_that_takes_long() -> None:
    inbox: SimpleQueue[object] = SimpleQueue()
    compiler = SlowCompiler()
    intake = Intake(ByteTokenizer(), inbox, compiler)
    for message in (submit(1, "first"), submit(2), submit(3, "bad"), submit(4), submit(5, "last")):
        intake.put(message)
    found = [take(inbox), take(inbox)]
    assert [one.message.id for one in found] == [2, 4]
    assert all(one.constraint is None and one.ids.size == 3 for one in found)
    compiler.may_go_on.set()
    first, bad, last = take(inbox), take(inbox), take(inbox)
    assert [one.message.id for one in (first, bad, last)] == [1, 3, 5]  # in their order
    assert [cast("str", one.constraint) for one in (first, last)] == ["first", "last"]
    assert isinstance(bad.error, BadOption)
    assert bad.constraint is None


def test_what_is_withdrawn_before_it_is_begun_is_never_compiled() -> None:
    inbox: SimpleQueue[object] = SimpleQueue()
    compiler = SlowCompiler()
    intake = Intake(ByteTokenizer(), inbox, compiler)
    intake.put(submit(1, "begun"))
    assert compiler.has_begun.wait(LIMIT_S)
    for message in (submit(2, "left"), submit(3), submit(4, "stays"), submit(5)):
        intake.put(message)
    assert [take(inbox).message.id, take(inbox).message.id] == [3, 5]  # so 2 waits to be compiled
    assert intake.withdraw(2)
    assert not intake.withdraw(1)  # a compiler at work cannot be held up
    assert not intake.withdraw(3)  # it has come out
    compiler.may_go_on.set()
    assert [take(inbox).message.id, take(inbox).message.id] == [1, 4]
    assert compiler.texts == ["begun", "stays"]


class SlowEncoder(ByteTokenizer):
    """Encodes nothing before it may."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def encode(self, segments: Iterable[Segment]) -> list[int]:
        self.has_begun.set()
        assert self.may_go_on.wait(LIMIT_S)
        return super().encode(segments)


def test_what_is_withdrawn_while_it_is_encoded_comes_out_without_its_grammar() -> None:
    inbox: SimpleQueue[object] = SimpleQueue()
    encoder, compiler = SlowEncoder(), SlowCompiler()
    intake = Intake(encoder, inbox, compiler)
    compiler.may_go_on.set()
    intake.put(submit(1, "left"))
    assert encoder.has_begun.wait(LIMIT_S)
    intake.put(submit(2, "left too"))
    intake.put(submit(3, "stays"))
    assert not intake.withdraw(1)
    assert intake.withdraw(2)
    encoder.may_go_on.set()
    assert [take(inbox).message.id, take(inbox).message.id] == [1, 3]
    assert compiler.texts == ["stays"]


def take(inbox: SimpleQueue[object]) -> Encoded:
    item: Any = inbox.get(timeout=LIMIT_S)
    assert isinstance(item, Encoded)
    return item
