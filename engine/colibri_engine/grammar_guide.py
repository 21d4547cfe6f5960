"""A grammar a reply may follow: it is watched, never enforced, and tells what would come next.

Older gateways send one along with a prompt as help for drafts. Until the reply says something the
grammar can begin with, and after it said something the grammar cannot go on with, nothing is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from colibri_engine.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_engine.grammar import Constraint

logger = logging.getLogger(__name__)


class Guide:
    """Where one reply is in its grammar.

    Args:
        start: The grammar's start state.
    """

    def __init__(self, start: Constraint) -> None:
        self._start = start
        self._state: Constraint | None = None  # None: the reply has not begun to follow it

    def follow(self, ids: Iterable[int]) -> None:
        """Go on behind tokens of the reply."""
        for token_id in ids:
            if self._state is None or not self._state.try_accept(token_id):
                begun = self._start.copy()
                self._state = begun if begun.try_accept(token_id) else None
            if self._state is not None and self._state.is_complete:
                self._state = None

    def forced(self) -> list[int]:
        """Return the tokens that the grammar leaves no choice about."""
        return [] if self._state is None else self._state.forced()


class Compiler(Protocol):
    """What a guide must know of grammars."""

    def compile_loosely(self, text: str) -> Constraint:
        """Return the start state of a grammar; BadOption when there is none."""


def compile_guide(compiler: Compiler, text: bytes) -> Guide | None:
    """Return the guide of a grammar as gateways send it; None where it has no use.

    Args:
        compiler: The model's.
        text: A JSON schema, or GBNF with a rule `root`.
    """
    try:
        return Guide(compiler.compile_loosely(text.decode()))
    except (BadOption, UnicodeDecodeError) as exc:
        logger.info("a grammar for drafts is not used: %s", exc)
        return None
