"""The conversation of one chat session: turns asked, kept, continued and taken back.

Knows nothing of terminals. Reasoning is kept for whoever wants to read it, but never sent again:
the next prompt holds messages and answers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.chat_log.export import fenced
from colibri_cli.chat_log.records import LoggedTurn, new_id, utc_now
from colibri_cli.errors import UsageError
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from colibri_cli.backends.base import Answer, Backend, Completed, Generation, ToolUse
    from colibri_cli.chat_formats.base import ToolCall
    from colibri_cli.chat_log.records import Attachment


@dataclass(frozen=True, slots=True)
class Round:
    """What the model said before it called tools, the calls, and what each of them gave."""

    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]

    @property
    def messages(self) -> list[ChatMessage]:
        """The round as the model gets it."""
        given = [
            ChatMessage("tool", result, tool_call_id=call.id, name=call.name)
            for call, result in zip(self.calls, self.results, strict=True)
        ]
        return [ChatMessage("assistant", self.text, tool_calls=self.calls), *given]


@dataclass(slots=True)
class Turn:
    """One message and its answer.

    Args:
        prompt: What was asked.
        attachments: Files that went along.
        answer: What was answered so far; empty before that.
        reasoning: What was thought before it.
        finish: How it ended, as in `Completed`, or None.
        figures: Its figures as the log keeps them.
        id: Its name in the log.
        asked: When.
        rounds: Calls of tools between message and answer.
    """

    prompt: str
    attachments: tuple[Attachment, ...] = ()
    answer: str = ""
    reasoning: str = ""
    finish: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
    asked: str = field(default_factory=utc_now)
    rounds: list[Round] = field(default_factory=list)

    @property
    def content(self) -> str:
        """What the model gets: the files, then the message."""
        files = [fenced(file.name, file.text) for file in self.attachments]
        return "\n\n".join([*files, self.prompt])


class ChatSession:
    """Turns so far, and how to ask for the next one.

    Args:
        backend: Who answers.
        generation: How to generate; may be replaced at any time, as may all that follow.
        system: System text, or None.
        thinking: Ask for reasoning, forbid it, or leave it to the model.
    """

    def __init__(
        self,
        backend: Backend,
        generation: Generation,
        *,
        system: str | None = None,
        thinking: bool | None = None,
    ) -> None:
        self.backend = backend
        self.generation = generation
        self.system = system
        self.thinking = thinking
        self.turns: list[Turn] = []
        self.files: list[Attachment] = []  # for the next message
        self.tools: Callable[[], ToolUse | None] = lambda: None
        self.failed: Turn | None = None  # asked last, and not answered

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """All messages, the system text first."""
        found = [ChatMessage("system", self.system)] if self.system else []
        for turn in self.turns:
            found.append(ChatMessage("user", turn.content))
            for called in turn.rounds:
                found += called.messages
            if turn.answer:
                found.append(ChatMessage("assistant", turn.answer))
        return tuple(found)

    @property
    def last(self) -> Turn | None:
        """The last turn."""
        return self.turns[-1] if self.turns else None

    def reset(self) -> None:
        """Begin a new conversation."""
        self.turns.clear()
        self.files.clear()
        self.failed = None

    def resume(self, turns: Sequence[LoggedTurn]) -> None:
        """Go on with turns of the log, under the system text they were asked under."""
        self.reset()
        self.turns = [
            Turn(
                turn.prompt,
                turn.attachments,
                turn.response,
                turn.reasoning,
                turn.finish,
                id=turn.id,
                asked=turn.datetime_utc,
            )
            for turn in turns
        ]
        if turns and turns[-1].system:
            self.system = turns[-1].system

    async def ask(self, text: str, files: Sequence[Attachment] | None = None) -> Answer:
        """Begin the answer to a new message; `keep` or `drop` ends the turn.

        The files that wait go along, unless others are given.
        """
        turn = Turn(text, tuple(self.files if files is None else files))
        if files is None:
            self.files.clear()
        self.failed = None
        self.turns.append(turn)
        return await self._begin(continues_last=False)

    async def answer_with(self, called: Round) -> Answer:
        """Begin the answer that follows calls of the last turn."""
        self.turns[-1].rounds.append(called)
        return await self._begin(continues_last=False)

    async def more(self) -> Answer:
        """Begin to continue the last answer.

        Raises:
            UsageError: there is no answer to continue.
        """
        if self.last is None or not self.last.answer:
            raise UsageError("there is no answer to continue")
        return await self._begin(continues_last=True)

    def keep(self, answer: str, reasoning: str = "", done: Completed | None = None) -> None:
        """Add what was answered; text after a continuation joins the answer it continues."""
        last = self.turns[-1]
        if not last.answer and not answer:
            self.drop()
            return
        last.answer += answer
        last.reasoning = reasoning or last.reasoning
        if done is not None:
            last.finish = done.finish
            last.figures = _figures(done)

    def drop(self) -> None:
        """Forget a message that got no answer; it can be asked again."""
        if self.last is not None and not self.last.answer:
            self.failed = self.turns.pop()

    def take_back(self, number: int | None = None) -> Turn:
        """Remove the last turn, or the one with this number (from 1) and all after it; return it.

        Raises:
            UsageError: there is no such turn.
        """
        if not self.turns:
            raise UsageError("there is no message in this conversation yet")
        number = len(self.turns) if number is None else number
        if not 1 <= number <= len(self.turns):
            raise UsageError(
                f"there is no message {number}: this conversation has {len(self.turns)}"
            )
        turn = self.turns[number - 1]
        del self.turns[number - 1 :]
        return turn

    def logged(self, turn: Turn) -> LoggedTurn:
        """Return a turn as the log keeps it."""
        index = next(n for n, known in enumerate(self.turns) if known is turn)
        generation = self.generation
        options: dict[str, Any] = {"stop": list(generation.stop)} if generation.stop else {}
        options |= {k: v for k, v in _set_options(generation).items() if v is not None}
        if turn.rounds:
            options["calls"] = [
                {"name": call.name, "arguments": dict(call.arguments), "result": result}
                for called in turn.rounds
                for call, result in zip(called.calls, called.results, strict=True)
            ]
        return LoggedTurn(
            id=turn.id,
            parent_id=self.turns[index - 1].id if index else None,
            prompt=turn.prompt,
            system=self.system,
            response=turn.answer,
            reasoning=turn.reasoning,
            options=options,
            finish=turn.finish,
            datetime_utc=turn.asked,
            attachments=turn.attachments,
            **turn.figures,
        )

    async def _begin(self, *, continues_last: bool) -> Answer:
        conversation = Conversation(
            self.messages, thinking=self.thinking, continues_last=continues_last
        )
        generation = replace(self.generation, tools=self.tools())
        return await self.backend.chat(conversation, generation)


def set_option(generation: Generation, name: str, value: object) -> Generation:
    """Return how to generate with one option of the engine changed."""
    changed: dict[str, Any] = {name: value}
    return replace(generation, options=replace(generation.options, **changed))


def _set_options(generation: Generation) -> dict[str, Any]:
    defaults = RequestOptions()
    values = {f.name: getattr(generation.options, f.name) for f in fields(defaults)}
    return {
        name: value
        for name, value in values.items()
        if value != getattr(defaults, name) and isinstance(value, int | float | str)
    }


def _figures(done: Completed) -> dict[str, Any]:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "ttft_ms": None if done.first_token_s is None else round(done.first_token_s * 1000),
        "duration_ms": round(done.total_s * 1000),
        "tok_s": round(done.tokens_per_second, 3),
        "hit_pct": done.hit_percent if done.rss_gb > 0 else None,  # a server does not tell
    }
