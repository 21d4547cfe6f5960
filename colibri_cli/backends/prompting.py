"""What one model's formats make of a request: prompt, engine options, reader of the answer.

Joins chat format, tool syntax, stop texts, grammar and reasoning plan; sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.answer import ThinkingPlan
from colibri_cli.backends.answer_text import AnswerText, StopTexts
from colibri_cli.chat_formats import harmony
from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.reasoning import TEXT_CHANNEL, THINKING_CHANNEL
from colibri_cli.chat_formats.registry import (
    format_for_model,
    stop_markers_for,
    tool_support_for,
)
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame
from colibri_cli.chat_formats.tool_formats.glm import GlmSyntax
from colibri_cli.errors import CapabilityMissing
from colibri_cli.supervisor.requests import EngineRequest
from colibri_protocol.errors import BadOption
from colibri_protocol.limits import ANY_SLOT, MAX_GRAMMAR_BYTES, MAX_OPTIONS_BYTES
from colibri_protocol.messages import Grammar, Segment, SegmentKind, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.backends.base import Generation, ToolUse
    from colibri_cli.chat_formats.base import ChatFormat, Conversation
    from colibri_cli.chat_formats.tool_support import ToolSupport
    from colibri_protocol.messages import RequestOptions

_MARKED: Final = {ThinkingStart.CHANNELS, ThinkingStart.HARMONY}
_MAY_THINK: Final = {ThinkingStart.OPEN, ThinkingStart.BY_MODEL, *_MARKED}
# Less what the other options may grow by when a request is continued.
_MAX_OPTIONS_BYTES: Final = MAX_OPTIONS_BYTES - 256
_END_OF_PART: Final = "<|end_message|>"


def _check_size(options: RequestOptions, grammar: Grammar | None) -> None:
    """Refuse a grammar that does not fit into a request with the other options.

    Raises:
        BadOption: With both sizes, as the engine's own frame counts them.
    """
    if grammar is None:
        return
    num_bytes = len(replace(options, grammar=grammar).to_json())
    if num_bytes > _MAX_OPTIONS_BYTES:
        why = f"what its grammar takes is {num_bytes} bytes, the limit is {_MAX_OPTIONS_BYTES}"
        raise BadOption("grammar", why)


def _check_draft(grammar: str | None) -> None:
    num_bytes = 0 if grammar is None else len(grammar.encode())
    if num_bytes > MAX_GRAMMAR_BYTES:
        why = f"has {num_bytes} bytes, the limit is {MAX_GRAMMAR_BYTES}"
        raise BadOption("grammar", why)


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """Everything an answer is begun with."""

    request: EngineRequest
    text: AnswerText
    plan: ThinkingPlan | None


class ModelFormats:
    """The formats of one model.

    Args:
        info: MODEL data, or what the model directory tells instead.
        words: Extended forms the engine announced.
        salvages_calls: Malformed calls are taken for what they probably mean, where the syntax can.
    """

    def __init__(
        self, info: Mapping[str, object], words: frozenset[str], *, salvages_calls: bool = False
    ) -> None:
        self._info = info
        self._words = words
        self._salvages_calls = salvages_calls

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How conversations are written down.

        Raises:
            ChatFormatError: the model cannot hold any.
        """
        return format_for_model(self._info)

    @cached_property
    def _tool_support(self) -> ToolSupport:
        support = tool_support_for(self._info)
        if self._salvages_calls and isinstance(support.syntax, GlmSyntax):
            return replace(support, syntax=GlmSyntax(salvages=True))
        return support

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt of a conversation, for counting.

        Raises:
            ChatFormatError: it cannot be written down for this model.
        """
        return self.chat_format.render(self._with_tools_as_text(conversation))

    def prepare_chat(self, conversation: Conversation, generation: Generation) -> PreparedRequest:
        """Return how the next assistant turn is begun.

        Raises:
            ChatFormatError: the conversation cannot be written down for this model.
            CapabilityMissing: tools would need grammars, and the engine has none.
        """
        chat_format, use = self.chat_format, generation.tools
        if use is None:
            conversation = self._with_tools_as_text(conversation)
        else:
            self._check_tools()
            conversation = self._tool_support.offer(conversation, use.tools, use.choice)
        prompt = chat_format.render(conversation)
        return self._prepared(prompt, generation)

    def prepare_text(self, prompt: str, generation: Generation) -> PreparedRequest:
        """Return how the continuation of a plain text is begun; control tokens in it are text.

        Marks of parts that the model writes are still no text.
        """
        segments: tuple[Segment, ...] = (Segment(SegmentKind.TEXT, prompt),)
        if generation.start:
            segments = (Segment(SegmentKind.CONTROL, generation.start), *segments)
        is_marked = str(self._info.get("family", "")).startswith("inkling")
        start = ThinkingStart.CHANNELS if is_marked else ThinkingStart.UNKNOWN_TO_MODEL
        rendered = RenderedPrompt(segments, start)
        return self._prepared(rendered, generation, is_chat=False)

    def _check_tools(self) -> None:
        if self._tool_support.needs_grammar and Word.GRAMMAR not in self._words:
            raise CapabilityMissing(
                "this model was never taught to call tools, and its engine cannot hold it to a"
                " form",
                option="tools",
                hint="leave out tools, or serve a model whose chat template knows them",
            )

    def _with_tools_as_text(self, conversation: Conversation) -> Conversation:
        """Write tools, calls and results into the messages where the chat format does not."""
        has_any = bool(conversation.tools) or any(
            message.tool_calls or message.role == "tool" for message in conversation.messages
        )
        return self._tool_support.written(conversation) if has_any else conversation

    def _prepared(
        self, prompt: RenderedPrompt, generation: Generation, *, is_chat: bool = True
    ) -> PreparedRequest:
        start, use, options = prompt.thinking_start, generation.tools, generation.options
        _check_size(options, options.grammar)
        _check_draft(generation.draft_grammar)
        plan = self._plan(start, generation)
        if use is not None:  # its grammar knows reasoning
            grammar = self._call_grammar(use, start, options.grammar)
            _check_size(options, grammar)
            options = replace(options, grammar=grammar)
        elif plan is not None and plan.splits:
            options = replace(options, grammar=None)
        segments = prompt.segments
        if Word.SEGMENTS not in self._words:
            segments = (Segment(SegmentKind.CONTROL, prompt.neutral_text),)
        marks = stop_markers_for(self._info) if is_chat else ()
        stops = StopTexts(generation.stop, generation.is_stop_patient, marks)
        request = EngineRequest(segments, options, generation.slot, generation.draft_grammar)
        return PreparedRequest(request, self._reader(stops, start, use), plan)

    def _reader(self, stops: StopTexts, start: ThinkingStart, use: ToolUse | None) -> AnswerText:
        if use is None:
            return AnswerText(stops, start)
        syntax = self._tool_support.syntax
        return AnswerText(
            stops,
            start,
            syntax.parser(use.tools, parallel=use.parallel),
            kept_markers=syntax.kept_markers,
            only_one_call=not use.parallel,
        )

    def _call_grammar(
        self, use: ToolUse, start: ThinkingStart, final: Grammar | None
    ) -> Grammar | None:
        """Return the grammar that forces calls; None where none is wanted or possible.

        Args:
            use: The tools.
            start: The state the text begins in.
            final: The form of an answer that is no call.
        """
        if Word.GRAMMAR not in self._words:
            return None
        tokens = self._info.get("special_tokens")
        special_tokens = tokens if isinstance(tokens, dict) else None
        frame = AnswerFrame(start, special_tokens, use.parallel, final)
        text = self._tool_support.grammar(use.tools, use.choice, frame)
        return Grammar("lark", text) if text is not None else None

    def _plan(self, start: ThinkingStart, generation: Generation) -> ThinkingPlan | None:
        """Return what is done when reasoning ends; None when it does not matter."""
        grammar, budget, use = (
            generation.options.grammar,
            generation.thinking_budget,
            generation.tools,
        )
        if start not in _MAY_THINK or (grammar is None and budget is None):
            return None
        splits = grammar is not None and use is None
        if use is not None:  # after reasoning, calls are forced as they would be without it
            after = start if start in _MARKED else ThinkingStart.CLOSED
            grammar = self._call_grammar(use, after, grammar)
        slot = ANY_SLOT if Word.SLOTS in self._words else generation.slot
        plan = ThinkingPlan(
            is_open=start is ThinkingStart.OPEN,
            next_slot=generation.next_slot or (lambda: slot),
            budget=budget,
            grammar=grammar,
            splits=splits,
        )
        if start is ThinkingStart.HARMONY:
            return _harmony_plan(plan, has_tools=use is not None)
        if start is ThinkingStart.CHANNELS:
            return replace(
                plan,
                open_marker=THINKING_CHANNEL,
                close_marker=f"{_END_OF_PART}<|message_model|>{TEXT_CHANNEL}",
                end_marker=_END_OF_PART,
                gap="",
            )
        is_glm = str(self._info.get("family", "")).startswith("glm")
        return replace(plan, gap="") if is_glm else plan


def _harmony_plan(plan: ThinkingPlan, *, has_tools: bool) -> ThinkingPlan:
    """Return a plan in the words of gpt-oss; with tools the next message may be a call."""
    answer = "" if has_tools else harmony.FINAL
    return replace(
        plan,
        open_marker=harmony.ANALYSIS,
        close_marker=f"{harmony.END}{harmony.ASSISTANT}{answer}",
        end_marker=harmony.END,
        gap="",
        answer_marker=answer,
    )
