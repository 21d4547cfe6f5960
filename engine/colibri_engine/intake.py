"""Prompts become token ids, and grammars automata, in threads beside the running steps.

A long text takes the tokenizer a while, a large schema its compiler; replies that are being decoded
must not wait for that. Both work without the GIL. Order is kept, but what has no grammar does not
wait for grammars before it: some take their compiler ten seconds.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from colibri_engine.errors import BadOption, RequestRefused
from colibri_engine.grammar_guide import compile_guide
from colibri_protocol.messages import Count, ErrorCode, SubmitExtended

if TYPE_CHECKING:
    from collections.abc import Iterable
    from queue import SimpleQueue

    import numpy.typing as npt

    from colibri_engine.grammar import Constraint
    from colibri_engine.grammar_guide import Guide
    from colibri_protocol.messages import Grammar, Segment

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")


class Encoder(Protocol):
    """What the intake must know of the tokenizer."""

    def encode(self, segments: Iterable[Segment]) -> list[int]:
        """Return the ids of a prompt."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and its ids, or why it has none."""

    message: SubmitExtended | Count
    ids: npt.NDArray[np.int32]
    error: Exception | None = None
    constraint: Constraint | None = None
    guide: Guide | None = None


class Compiler(Protocol):
    """What the intake must know of grammars."""

    def compile_loosely(self, text: str) -> Constraint:
        """Return the start state of a grammar that only helps to draft; BadOption likewise."""

    def compile(self, grammar: Grammar) -> Constraint:
        """Return the start state of a grammar; BadOption when there is none."""


class Intake:
    """Encodes what it is given, one after the other, and likewise makes its grammars.

    What is waiting can be withdrawn, so that clients who leave occupy no compiler.

    Args:
        encoder: The tokenizer.
        inbox: Where each `Encoded` goes.
        compiler: Makes a request's grammar, which takes longer than a step may wait.
    """

    def __init__(self, encoder: Encoder, inbox: SimpleQueue[object], compiler: Compiler) -> None:
        self._encoder = encoder
        self._compiler = compiler
        self._inbox = inbox
        self._changed = threading.Condition()
        # By id, in their order; used only under the lock of the condition, like the set.
        self._waiting: dict[int, tuple[SubmitExtended | Count, bytes | None]] = {}
        self._without_grammar: dict[int, tuple[Encoded, bytes | None]] = {}
        self._withdrawn: set[int] = set()  # of those being encoded
        threading.Thread(target=self._run, name="coli intake", daemon=True).start()
        threading.Thread(target=self._run_compiler, name="coli grammars", daemon=True).start()

    def put(self, message: SubmitExtended | Count, guide: bytes | None = None) -> None:
        """Take a message whose segments are to be encoded, and a grammar to draft with."""
        with self._changed:
            self._waiting[message.id] = (message, guide)
            self._changed.notify_all()

    def withdraw(self, request_id: int) -> bool:
        """Forget a message if nobody works on it; return whether it will not come out."""
        with self._changed:
            waiting = self._waiting.pop(request_id, None)
            if waiting is not None or self._without_grammar.pop(request_id, None) is not None:
                return True
            self._withdrawn.add(request_id)
            return False

    def _run(self) -> None:
        while True:
            message, guide = self._first_of(self._waiting)
            encoded = self._encode(message)
            has_grammar = guide is not None or _grammar_of(message) is not None
            with self._changed:
                is_wanted = message.id not in self._withdrawn
                self._withdrawn.clear()
                if has_grammar and is_wanted and encoded.error is None:
                    self._without_grammar[message.id] = (encoded, guide)
                    self._changed.notify_all()
                    continue
            self._inbox.put(encoded)

    def _run_compiler(self) -> None:
        while True:
            self._inbox.put(self._with_grammar(*self._first_of(self._without_grammar)))

    def _first_of(self, waiting: dict[int, _Item]) -> _Item:
        """Wait for something and take it."""
        with self._changed:
            while not waiting:
                self._changed.wait()
            return waiting.pop(next(iter(waiting)))

    def _encode(self, message: SubmitExtended | Count) -> Encoded:
        try:
            return Encoded(message, np.array(self._encoder.encode(message.segments), np.int32))
        except Exception as exc:  # whatever it is, it is the fault of one prompt
            logger.exception("the prompt of request %d cannot be encoded", message.id)
            detail = f"the prompt cannot be encoded: {exc}"
            return Encoded(
                message, np.empty(0, np.int32), RequestRefused(ErrorCode.BAD_REQUEST, detail)
            )

    def _with_grammar(self, encoded: Encoded, guide: bytes | None) -> Encoded:
        grammar = _grammar_of(encoded.message)
        if grammar is None:
            found = None if guide is None else compile_guide(self._compiler, guide)
            return replace(encoded, guide=found)
        try:
            return replace(encoded, constraint=self._compiler.compile(grammar))
        except BadOption as exc:
            return replace(encoded, error=exc)


def _grammar_of(message: SubmitExtended | Count) -> Grammar | None:
    return message.options.grammar if isinstance(message, SubmitExtended) else None
