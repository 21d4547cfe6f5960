"""Grammars as masks: which tokens may come next in a reply that must satisfy one.

The automata are llguidance's; here is only what ties them to a tokenizer and to a row of logits.
Compiling may take long for a large schema, so it is done beside the running steps; computing a mask
is part of a step.
Source: https://github.com/guidance-ai/llguidance
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import BadOption
from colibri_engine.json_schema import enforceable

if TYPE_CHECKING:
    from collections.abc import Callable

    import llguidance
    import numpy.typing as npt

    from colibri_engine.tokenizer import Tokenizer
    from colibri_protocol.messages import Grammar

    Row = npt.NDArray[np.float32]

# Compact JSON, or with the single blanks of ordinary text: free white space need never end.
_JSON_STYLE: Final = {
    "whitespace_flexible": False,
    "item_separator": ",[ \\n]?",
    "key_separator": ":[ \\n]?",
}
_LOOSE_JSON_STYLE: Final[Any] = {"whitespace_flexible": True, "lenient": True}
# What of a grammar in lark may hold anything, so that `%json` in it is no word: comments, texts,
# regexes; or the word itself.
_LARK_WORD: Final = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)+/|%json\s*')
_MAX_REASON: Final = 400  # characters of a compiler's message that go to the client


class GrammarFault(RuntimeError):
    """The automaton gave up on a reply: it grew beyond its bounds."""


class Constraint:
    """The state of one reply's grammar.

    Args:
        matcher: A fresh automaton without error.
        vocab_size: Length of the rows it masks.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def masked(self, logits: Row) -> Row:
        """Return a copy of `logits` (V,) float32 in which what may not follow is -inf.

        Raises:
            GrammarFault: The automaton cannot go on.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token_id: int) -> None:
        """Go on behind a token that was chosen.

        Raises:
            GrammarFault: It may not follow.
        """
        self._matcher.consume_token(token_id)
        self._check()

    def try_accept(self, token_id: int) -> bool:
        """Go on behind a token if it may follow; return whether it may."""
        return self._matcher.try_consume_tokens([token_id]) == 1

    def forced(self) -> list[int]:
        """Return the tokens that must come next, as the tokenizer would cut their text."""
        matcher = self._matcher.deep_copy()  # the reply's own is not touched by looking ahead
        tokens = matcher.compute_ff_tokens()
        return [] if matcher.is_error() else tokens

    def copy(self) -> Constraint:
        """Return the same state, to go on from independently."""
        return Constraint(self._matcher.deep_copy(), self._vocab_size)

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end token may follow."""
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFault(f"it cannot go on: {_reason(self._matcher.get_error())}")


class GrammarCompiler:
    """Makes constraints for one model. Used by one thread at a time.

    Args:
        tokenizer: The model's tokenizer.
        vocab_size: Length of its rows of logits; at least the tokenizer's vocabulary.
        eos_ids: Tokens that may end a complete reply.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._lock = threading.Lock()
        self._inner: llguidance.LLTokenizer | None = None

    def compile(self, grammar: Grammar) -> Constraint:
        """Return the start state of a grammar.

        Raises:
            BadOption: It cannot be compiled; with the reason.
        """
        import llguidance  # 20 MB that most replies do without

        return self._constraint(llguidance, _llguidance_text(llguidance, grammar))

    def compile_loosely(self, text: str) -> Constraint:
        """Return the start state of a grammar that need not be enforced as a whole.

        Args:
            text: A JSON schema, of which unknown words are left out and which allows any white
                space; or GBNF.

        Raises:
            BadOption: It cannot be compiled; with the reason.
        """
        import llguidance

        matcher = llguidance.LLMatcher
        if not text.lstrip().startswith("{"):
            return self._constraint(llguidance, matcher.grammar_from_lark(_lark_of(text)))
        _schema_of(text)  # says what is wrong with it
        try:
            grammar = matcher.grammar_from_json_schema(text, overrides=_LOOSE_JSON_STYLE)
        except ValueError as exc:
            raise BadOption("grammar", f"cannot be compiled: {_reason(str(exc))}") from exc
        return self._constraint(llguidance, grammar)

    def _constraint(self, llguidance: Any, text: str) -> Constraint:  # noqa: ANN401
        matcher = llguidance.LLMatcher(self._llguidance_tokenizer(llguidance), text, log_level=0)
        if matcher.is_error():
            raise BadOption("grammar", f"cannot be compiled: {_reason(matcher.get_error())}")
        matcher.compute_bitmask()  # that no text is allowed is found only here
        if matcher.is_error():
            raise BadOption("grammar", f"no answer can begin: {_why_none(matcher.get_error())}")
        return Constraint(matcher, self._vocab_size)

    def _llguidance_tokenizer(self, llguidance: Any) -> llguidance.LLTokenizer:  # noqa: ANN401
        """Return the vocabulary as a trie; built on first use."""
        with self._lock:
            if self._inner is None:
                wrapper = llguidance.TokenizerWrapper(
                    _Vocabulary(self._tokenizer, self._vocab_size, min(self._eos_ids, default=0))
                )
                self._inner = llguidance.LLTokenizer(
                    wrapper, n_vocab=self._vocab_size, eos_token=sorted(self._eos_ids) or None
                )
            return self._inner


class _Vocabulary:
    """A tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_id: int) -> None:
        self._encode = tokenizer.encode_text
        self.eos_token_id = eos_id
        self.bos_token_id = None
        self.special_token_ids = sorted(tokenizer.special_tokens.values())
        self.tokens = [_bytes_of(tokenizer.token_bytes, i) for i in range(vocab_size)]

    def __call__(self, text: bytes | str) -> list[int]:
        """Return the ids of a text."""
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def _bytes_of(token_bytes: Callable[[int], bytes], token_id: int) -> bytes:
    try:
        return token_bytes(token_id)
    except BadOption:
        return b""  # rows that only pad the vocabulary stand for nothing


def _llguidance_text(llguidance: Any, grammar: Grammar) -> str:  # noqa: ANN401
    matcher = llguidance.LLMatcher
    text: str
    match grammar.kind:
        case "json_schema":
            schema = _schema_of(grammar.text)

            def from_schema(splits_one_of: bool) -> str:
                plain = json.dumps(
                    enforceable(schema, _disjointness(matcher), splits_one_of=splits_one_of)
                )
                return str(matcher.grammar_from_json_schema(plain, defaults=_JSON_STYLE))

            text = _compilable(matcher, from_schema)
        case "regex":
            text = matcher.grammar_from_regex(grammar.text)
        case "lark":

            def from_lark(splits_one_of: bool) -> str:
                plain = _with_enforceable_schemas(
                    grammar.text, _disjointness(matcher), splits_one_of=splits_one_of
                )
                return str(matcher.grammar_from_lark(plain))

            text = _compilable(matcher, from_lark)
        case "gbnf":
            text = matcher.grammar_from_lark(_lark_of(grammar.text))
        case kind:
            raise BadOption("grammar", f"kind {kind!r} is not json_schema, regex, lark or gbnf")
    return text


def _schema_of(text: str) -> dict[str, Any] | bool:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadOption("grammar", f"the schema is not JSON: {exc}") from exc
    if not isinstance(schema, dict | bool):
        raise BadOption("grammar", "the schema is neither an object nor true or false")
    return schema


def _compilable(matcher: Any, write: Callable[[bool], str]) -> str:  # noqa: ANN401
    """Return what `write` makes of a schema; of overlapping `oneOf` split where that is needed."""
    text = ""
    for splits_one_of in (False, True):
        try:
            text = write(splits_one_of)
        except ValueError as exc:  # not a number, for example
            raise BadOption("grammar", f"cannot be compiled: {_reason(str(exc))}") from exc
        if "oneOf" not in text:
            break
        is_bad, messages = matcher.validate_grammar_with_warnings(text)
        if not is_bad or not any("oneOf" in message for message in messages):
            break
    return text


def _disjointness(matcher: Any) -> Callable[[str, str], bool]:  # noqa: ANN401
    def are_disjoint(first: str, second: str) -> bool:
        schema = {"patternProperties": {first: True, second: True}}
        text = matcher.grammar_from_json_schema(json.dumps(schema))
        return not any("disjoint" in m for m in matcher.validate_grammar_with_warnings(text)[1])

    return are_disjoint


def _with_enforceable_schemas(
    lark: str, are_disjoint: Callable[[str, str], bool], *, splits_one_of: bool
) -> str:
    """Return a grammar whose JSON parts are enforced as wholly as a schema of its own is.

    A part that says it is lenient stays: what cannot be enforced in it is left out.
    """
    parts: list[str] = []
    place = 0
    while (match := _LARK_WORD.search(lark, place)) is not None:
        end = match.end()
        parts.append(lark[place:end])
        place = end
        if not match.group().startswith("%json"):
            continue
        try:
            schema, place = json.JSONDecoder().raw_decode(lark, end)
        except (ValueError, RecursionError):
            continue  # the compiler says what is wrong with it
        if not isinstance(schema, dict | bool):
            raise BadOption("grammar", "a schema is neither an object nor true or false")
        if _is_lenient(schema):
            parts.append(lark[end:place])
            continue
        own = schema.get("x-guidance") if isinstance(schema, dict) else None
        guidance = _JSON_STYLE | (own if isinstance(own, dict) else {})
        plain = enforceable(schema, are_disjoint, splits_one_of=splits_one_of)
        parts.append(json.dumps(plain | {"x-guidance": guidance}))
    return "".join(parts) + lark[place:]


def _is_lenient(schema: Any) -> bool:  # noqa: ANN401
    guidance = schema.get("x-guidance") if isinstance(schema, dict) else None
    return isinstance(guidance, dict) and guidance.get("lenient") is True


def _lark_of(gbnf: str) -> str:
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark: str = any_to_lark(gbnf)
    except Exception as exc:  # it raises that very class where a rule is missing
        raise BadOption("grammar", f"is no GBNF: {_reason(str(exc))}") from exc
    return lark


def _reason(message: str) -> str:
    """Return a compiler's message on one line of bounded length, without its inner state."""
    return " ".join(message.partition("<state>")[0].split())[:_MAX_REASON]


def _why_none(message: str) -> str:
    """Return why nothing matches a grammar, of which the compiler says this."""
    reason = _reason(message)
    if " " in reason:
        return reason
    return (
        f"it allows no text at all ({reason}); look for a part that refers only to itself or a "
        "pattern that matches nothing"
    )
