"""Writing grammars in the dialect of llguidance: markers, free text, JSON by schema, reasoning.

A model's control tokens exist for a grammar only as tokens (`<[id]>`); what is no control token is
ordinary text, whatever it looks like. Free text never contains a control token.
Source: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats import harmony
from colibri_cli.chat_formats.base import ThinkingStart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_protocol.messages import Grammar

_TEXT: Final = "TEXT"
_SPACE: Final = "SPACE"
# Compact, or with the single spaces of training data: free white space need never end.
_JSON_STYLE: Final[Mapping[str, object]] = {
    "whitespace_flexible": False,
    "item_separator": ",[ \\n]?",
    "key_separator": ":[ \\n]?",
}


class LarkGrammar:
    """Collects rules; names are made here, so that user text never is one.

    Args:
        special_tokens: Text and id of the model's control tokens.
    """

    def __init__(self, special_tokens: Mapping[str, int] | None = None) -> None:
        self._special = dict(special_tokens or {})
        longest_first = sorted(filter(None, self._special), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._rules: dict[str, str] = {}

    def rule(self, body: str, options: str = "") -> str:
        """Add a rule and return its name."""
        name = f"r{len(self._rules)}"
        self._rules[name] = f"{name}{options}: {body}"
        return name

    def terminal(self, body: str) -> str:
        """Add a terminal (one lexeme) and return its name."""
        name = f"T{len(self._rules)}"
        self._rules[name] = f"{name}: {body}"
        return name

    def exact(self, text: str) -> str:
        """Return an expression for a text of ours, control tokens as tokens."""
        parts: list[str] = []
        place = 0
        for match in self._pattern.finditer(text):
            parts += [quoted(text[place : match.start()]), f"<[{self._special[match.group()]}]>"]
            place = match.end()
        return " ".join(filter(None, [*parts, quoted(text[place:])]))

    def named(self, before: str, name: str, after: str = "") -> str:
        """Return an expression for a client's name between texts of ours; it is only text."""
        if not self._pattern.search(name):
            return self.exact(before + name + after)
        return " ".join(filter(None, [self.exact(before), quoted(name), self.exact(after)]))

    def before_token(self, marker: str) -> tuple[str, str] | None:
        """Return the parts of a marker before and from its first control token, or None."""
        match = self._pattern.search(marker)
        return None if match is None else (marker[: match.start()], marker[match.start() :])

    def free_text(self) -> str:
        """Return an expression for any text."""
        self._rules.setdefault(_TEXT, rf"{_TEXT}: /(?s:.*)/")
        return _TEXT

    def space(self) -> str:
        """Return an expression for a little white space or none."""
        self._rules.setdefault(_SPACE, rf"{_SPACE}: /[ \n]{{0,4}}/")
        return _SPACE

    def until(self, marker: str) -> str:
        """Return an expression for any text up to and with the first `marker`."""
        parts = self.before_token(marker)
        if parts is not None:
            plain, rest = parts
            text = self.terminal(f"/(?s:.*){regex_of(plain)}/") if plain else self.free_text()
            return f"{text} {self.exact(rest)}"
        return self.rule(f"{self.free_text()} {quoted(marker)}", "[lazy]")

    def json(self, schema: Mapping[str, Any], *, is_strict: bool) -> str:
        """Return an expression for a JSON value of a schema.

        Args:
            schema: Any schema.
            is_strict: A part that cannot be enforced makes the grammar invalid, instead of being
                left out.
        """
        style = {**_JSON_STYLE, "lenient": True} if not is_strict else _JSON_STYLE
        # The engine reads a strict schema by the rules of its draft.
        dropped = {"$id"} if is_strict else {"$schema", "$id"}
        kept = {key: value for key, value in schema.items() if key not in dropped}
        return self.rule("%json " + json.dumps({**kept, "x-guidance": style}))

    def form(self, wanted: Grammar) -> str:
        """Return an expression for the form a client wants, of kind "json_schema" or "regex"."""
        if wanted.kind == "regex":
            pattern = re.sub(r"\\.|[/\n]", _kept_in_regex, wanted.text, flags=re.DOTALL)
            return self.terminal(f"/{pattern}/")
        return self.json(json.loads(wanted.text), is_strict=True)

    def text(self, start: str) -> str:
        """Return the grammar with this start expression."""
        return "\n".join([f"start: {start}", *self._rules.values()]) + "\n"


def quoted(text: str) -> str:
    """Return a literal; nothing for the empty text."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def regex_of(text: str) -> str:
    """Return the inside of a /regex/ that matches exactly this text."""
    return re.sub(r"([^A-Za-z0-9 _\u0080-\U0010ffff])", _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    return f"\\x{ord(character):02x}"


def _kept_in_regex(match: re.Match[str]) -> str:
    """Return what stands for a part of a regex, where a slash or a line break would end it."""
    return {"/": r"\x2f", "\n": r"\x0a"}.get(match.group()[-1], match.group())


def with_reasoning(grammar: LarkGrammar, thinking: ThinkingStart, answer: str) -> str:
    """Return an expression for the whole generated text, given that of the answer.

    Args:
        grammar: Where rules are added.
        thinking: The state the text begins in.
        answer: The expression after reasoning.
    """
    if thinking is ThinkingStart.OPEN:
        return f"{grammar.until('</think>')} {grammar.space()} {answer}"
    if thinking is ThinkingStart.BY_MODEL:
        thought = f"{grammar.exact('<think>')} {grammar.until('</think>')}"
        return f"({grammar.space()} {thought})? {grammar.space()} {answer}"
    if thinking is ThinkingStart.CHANNELS:
        end = grammar.exact("<|end_message|>")
        thought = f"{grammar.exact('<|content_thinking|>')} {grammar.until('<|end_message|>')}"
        begin = grammar.exact("<|content_text|>")
        return f"({thought} {grammar.exact('<|message_model|>')})* ({begin})? {answer} ({end})?"
    if thinking is ThinkingStart.HARMONY:
        head, then = grammar.exact(harmony.ANALYSIS), grammar.exact(harmony.ASSISTANT)
        thought = f"{head} {grammar.until(harmony.END)} {then}"
        return f"({thought})* {grammar.exact(harmony.FINAL)} {answer}"
    return answer
