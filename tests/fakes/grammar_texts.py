"""Whether a grammar allows a text, decided by the library the engine uses, on single bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper


class ByteVocabulary:
    """Every byte is a token, and so is every control token."""

    bos_token_id = None

    def __init__(self, special: Sequence[str] = ()) -> None:
        self.special_tokens = {text: 256 + place for place, text in enumerate(special)}
        end = 256 + len(special)
        self.tokens = [bytes([byte]) for byte in range(256)]
        self.tokens += [text.encode() for text in [*special, "<end>"]]
        self.eos_token_id = end
        self.special_token_ids = [*self.special_tokens.values(), end]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, control tokens as such."""
        if not self.special_tokens:
            return list(text.encode())
        marks = "|".join(re.escape(mark) for mark in self.special_tokens)
        ids: list[int] = []
        for part in re.split(f"({marks})", text):
            known = self.special_tokens.get(part)
            ids += list(part.encode()) if known is None else [known]
        return ids

    def allows(self, grammar: str, text: str) -> bool:
        """Return whether the whole text, and its end there, are allowed.

        Raises:
            ValueError: the grammar does not compile.
        """
        return self.allows_ids(grammar, self.encode(text))

    def allows_ids(self, grammar: str, ids: Sequence[int]) -> bool:
        """Return whether these tokens, and the end after them, are allowed.

        Raises:
            ValueError: the grammar does not compile.
        """
        tokenizer = LLTokenizer(TokenizerWrapper(self))
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher.try_consume_tokens(list(ids)) == len(ids) and matcher.is_accepting()
