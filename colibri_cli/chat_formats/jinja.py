"""Chat format driven by the checkpoint's own template, with user text kept apart.

How user text is separated: every string that came from outside is replaced by an unguessable
placeholder, the template runs on the placeholders, and the result is cut at them. The pieces must
then add up to exactly what the template gives for the real strings; templates that trim a string
are followed by trying its trimmed forms. When a template looks into the strings (so the two runs
differ), only the special tokens inside the strings are replaced, which needs no such agreement
about the rest. If even that fails, the conversation is refused rather than let through.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.base import (
    ChatMessage,
    Conversation,
    RenderedPrompt,
    ThinkingStart,
    ToolCall,
    with_system_text,
)
from colibri_cli.chat_formats.call_history import one_call_each, with_named_ids
from colibri_cli.chat_formats.harmony import ASSISTANT
from colibri_cli.chat_formats.sandbox import compile_template, run_template
from colibri_cli.chat_formats.template_traits import (
    TemplateTraits,
    thinking_variables,
    traits_of,
)
from colibri_cli.errors import ChatFormatError
from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_THINK_OPEN: Final = "<think>"
_THINK_CLOSE: Final = "</think>"
_MARK: Final = re.compile(r"<[^<>\s{}]{1,48}>")
# Templates look at these; no control token is one of them.
_SCHEMA_WORDS: Final = frozenset(
    {"string", "integer", "number", "boolean", "object", "array", "null", "function"}
)
_ROLE: Final = re.compile("[a-z_]{1,32}")


class JinjaChatFormat:
    """One model's template and the special tokens it is written with.

    Args:
        template: Source of the template.
        special_tokens: Texts the engine would read as control tokens, besides those the template
            itself holds.
        variables: Values every template gets (`bos_token`, `eos_token`, …).

    Raises:
        ChatFormatError: the template is not valid.
    """

    def __init__(
        self, template: str, special_tokens: Iterable[str], variables: Mapping[str, str]
    ) -> None:
        self._template = compile_template(template)
        self._source = template
        self._traits = traits_of(template)
        # Engines also recognise marks like <think> that a vocabulary does not call special.
        marks = {*special_tokens, *_MARK.findall(template)}
        self._special_tokens = tuple(sorted(filter(None, marks), key=len, reverse=True))
        self._variables = dict(variables)

    @property
    def can_think(self) -> bool:
        """Whether the template looks at a switch for reasoning."""
        return self._traits.can_think

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt for the next (or the continued last) assistant turn.

        Raises:
            ChatFormatError: the template refuses the conversation, or its text cannot be kept
                apart from control tokens.
        """
        conversation = _with_instruction(conversation)
        if self._traits.writes_one_call:
            conversation = replace(conversation, messages=one_call_each(conversation.messages))
        if self._traits.writes_ids_alone:
            conversation = replace(conversation, messages=with_named_ids(conversation.messages))
        try:
            plain = self._run(conversation, _identity)
        except ChatFormatError:
            merged = _with_system_in_user_turn(conversation)
            if merged is None:
                raise
            conversation, plain = merged, self._run(merged, _identity)
        segments = self._with_whole_strings(conversation, plain)
        if segments is None:
            segments = self._with_protected_tokens(conversation, plain)
        if segments is None:
            raise ChatFormatError(
                "the model's chat template changes the text of a message that contains one of"
                " its control tokens",
                hint="remove control tokens such as <|im_start|> from the message",
            )
        if conversation.continues_last:
            segments = _cut_after_answer(segments, conversation.messages[-1].content)
        start = self._thinking_start(segments)
        return RenderedPrompt(tuple(segments), start, self._special_tokens)

    def _with_whole_strings(self, conversation: Conversation, plain: str) -> list[Segment] | None:
        placeholders = _Placeholders()
        try:
            marked = self._run(conversation, placeholders.put)
        except ChatFormatError:
            return None
        return placeholders.split(marked, plain)

    def _with_protected_tokens(
        self, conversation: Conversation, plain: str
    ) -> list[Segment] | None:
        placeholders = _Placeholders()
        pattern = _token_pattern(self._special_tokens)
        if pattern is None:
            return [Segment(SegmentKind.CONTROL, plain)]

        def protect(text: str) -> str:
            return pattern.sub(lambda match: placeholders.put(match.group()), text)

        try:
            marked = self._run(conversation, protect)
        except ChatFormatError:
            return None
        return placeholders.split(marked, plain)

    def _run(self, conversation: Conversation, change: Callable[[str], str]) -> str:
        marker = _Marker(change, self._special_tokens, self._traits)
        variables: dict[str, Any] = {
            **self._variables,
            **marker.value(dict(conversation.template_variables)),
            "messages": [marker.message(message) for message in conversation.messages],
            "tools": [marker.value(tool) for tool in conversation.tools] or None,
            "documents": None,
            "add_generation_prompt": not conversation.continues_last,
        }
        return run_template(
            self._template, {**thinking_variables(self._traits, conversation), **variables}
        )

    def _thinking_start(self, segments: list[Segment]) -> ThinkingStart:
        if self._traits.has_channels:
            return ThinkingStart.CHANNELS
        if self._traits.is_harmony:
            begins = bool(segments) and segments[-1].text.endswith(ASSISTANT)
            return ThinkingStart.HARMONY if begins else ThinkingStart.CLOSED
        end = segments[-1].text.rstrip() if segments else ""
        if segments and segments[-1].kind is SegmentKind.CONTROL:
            if end.endswith(_THINK_OPEN):
                return ThinkingStart.OPEN
            if end.endswith(_THINK_CLOSE):
                return ThinkingStart.CLOSED
        if _THINK_CLOSE in self._source or _THINK_OPEN in self._special_tokens:
            return ThinkingStart.BY_MODEL
        return ThinkingStart.UNKNOWN_TO_MODEL


class _Placeholders:
    """Stand-ins for strings, and the way back."""

    def __init__(self) -> None:
        self._prefix = f"x{secrets.token_hex(16)}n"
        self._places: dict[str, int] = {}

    def put(self, text: str) -> str:
        """Return the stand-in of a string, the same for equal ones; nothing stands for itself."""
        if not text or text in _SCHEMA_WORDS:
            return text
        place = self._places.setdefault(text, len(self._places))
        return f"{self._prefix}{place}x"

    def split(self, marked: str, plain: str) -> list[Segment] | None:
        """Cut `marked` at the stand-ins; None if it does not add up to `plain`."""
        # By hand: compiling a pattern for every request costs 70 µs and empties the cache of `re`.
        first, *parts = marked.split(self._prefix)
        values = list(self._places)
        literals, indices = [first], list[int]()
        for part in parts:
            place, end, literal = part.partition("x")
            if not end or not place.isdecimal() or int(place) >= len(values):
                return None  # a template cut it up
            indices.append(int(place))
            literals.append(literal)
        if not plain.startswith(literals[0]):
            return None
        segments = [Segment(SegmentKind.CONTROL, literals[0])]
        offset = len(literals[0])
        for index, literal in zip(indices, literals[1:], strict=True):
            text = _form_at(plain, offset, values[index], literal)
            if text is None:
                return None
            segments += [Segment(SegmentKind.TEXT, text), Segment(SegmentKind.CONTROL, literal)]
            offset += len(text) + len(literal)
        return _merged(segments) if offset == len(plain) else None


def _form_at(plain: str, offset: int, value: str, literal: str) -> str | None:
    """Return the form of `value` (whole, trimmed, in JSON) that stands at `offset`."""
    forms = (
        value,
        value.strip(),
        value.rstrip(),
        value.lstrip(),
        value.strip("\n"),
        value.rstrip("\n"),
        value.lstrip("\n"),
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1],
    )
    for form in forms:
        if plain.startswith(form + literal, offset):
            return form
    return None


def _merged(segments: list[Segment]) -> list[Segment]:
    merged: list[Segment] = []
    for segment in segments:
        if not segment.text:
            continue
        if merged and merged[-1].kind is segment.kind:
            merged[-1] = Segment(segment.kind, merged[-1].text + segment.text)
        else:
            merged.append(segment)
    return merged


def _cut_after_answer(segments: list[Segment], answer: str) -> list[Segment]:
    """Drop what the template writes after the last assistant text, so that it can go on."""
    for position in range(len(segments) - 1, -1, -1):
        segment = segments[position]
        if segment.kind is SegmentKind.TEXT and segment.text.strip() == answer.strip():
            return [*segments[:position], Segment(SegmentKind.TEXT, answer)]
    text = "".join(segment.text for segment in segments)
    end = text.rfind(answer.strip())
    if end < 0 or len(segments) != 1:
        raise ChatFormatError("the model's chat template does not let an answer be continued")
    return [Segment(SegmentKind.CONTROL, text[: end + len(answer.strip())])]


class _Marker:
    """Applies `change` to every string of a conversation that came from outside."""

    def __init__(
        self,
        change: Callable[[str], str],
        special_tokens: tuple[str, ...],
        traits: TemplateTraits,
    ) -> None:
        self._change = change
        self._special_tokens = special_tokens
        self._traits = traits
        self._id = _short_id if traits.wants_short_call_ids else change

    def message(self, message: ChatMessage) -> dict[str, Any]:
        """Return the message as templates expect it."""
        if not _ROLE.fullmatch(message.role):
            raise ChatFormatError(f"{message.role[:40]!r} is no role of a message")
        body: dict[str, Any] = {"role": message.role, "content": self._change(message.content)}
        if message.reasoning:
            body["reasoning_content"] = self._change(message.reasoning)
        if self._traits.is_harmony and message.reasoning:
            body["thinking"] = body["reasoning_content"]
            if message.tool_calls:  # beside a call there is room for one text before it
                body["thinking"] += body["content"]
                body["content"] = ""
        if message.tool_calls:
            body["tool_calls"] = [self._call(call) for call in message.tool_calls]
            if self._traits.asks_for_content and not body["content"]:
                body["content"] = None
        if message.tool_call_id is not None:
            body["tool_call_id"] = self._id(message.tool_call_id)
        if message.name is not None:
            body["name"] = self._change(message.name)
        return body

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value with its texts changed; keys only if they hold a special token."""
        if isinstance(value, str):
            return self._change(value)
        if isinstance(value, Mapping):
            return {self._key(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments = self.value(call.arguments)
        if self._traits.joins_arguments:
            arguments = self._change(json.dumps(call.arguments, ensure_ascii=False))
        function = {"name": self._change(call.name), "arguments": arguments}
        return {"id": self._id(call.id), "type": "function", "function": function}

    def _key(self, key: object) -> object:
        if isinstance(key, str) and any(token in key for token in self._special_tokens):
            return self._change(key)
        return key  # templates look fields up by these names


def _token_pattern(tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    """Match special tokens, and what could become one together with neighbouring text."""
    if not tokens:
        return None
    whole = "|".join(re.escape(token) for token in tokens)
    starts = {token[:length] for token in tokens for length in range(1, len(token))}
    ends = {token[-length:] for token in tokens for length in range(1, len(token))}
    at_end = "|".join(re.escape(start) for start in sorted(starts, key=len, reverse=True))
    at_start = "|".join(re.escape(end) for end in sorted(ends, key=len, reverse=True))
    pieces = [whole]
    if at_end:
        pieces += [rf"(?:{at_end})\Z", rf"\A(?:{at_start})"]
    return re.compile("|".join(pieces))


def _identity(text: str) -> str:
    return text


def _short_id(call_id: str) -> str:
    """Return nine letters and digits that stand for an id: some templates refuse any other."""
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _with_system_in_user_turn(conversation: Conversation) -> Conversation | None:
    """Return the conversation for a template that knows no system role; None if it has none."""
    roles = [message.role for message in conversation.messages[:2]]
    if roles not in (["system", "user"], ["developer", "user"]):
        return None
    system, user = conversation.messages[:2]
    merged = replace(user, content=f"{system.content}\n\n{user.content}")
    return replace(conversation, messages=(merged, *conversation.messages[2:]))


def _with_instruction(conversation: Conversation) -> Conversation:
    """Write the sentence about a call that must be made into the system message."""
    sentence = conversation.call_instruction
    if not sentence:
        return conversation
    return replace(with_system_text(conversation, sentence), call_instruction="")
