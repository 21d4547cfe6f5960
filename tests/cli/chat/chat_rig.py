"""A chat without a terminal and without processes: lines in, what was shown and asked out."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from colibri_cli.backends.base import (
    Completed,
    Generation,
    Health,
    ModelCard,
    ReasoningDelta,
    TextDelta,
)
from colibri_cli.chat.command import built_in_commands
from colibri_cli.chat.conversation import ChatSession
from colibri_cli.chat.loop import ChatLoop
from colibri_cli.chat.recorder import Recorder
from colibri_cli.supervisor.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from colibri_cli.backends.base import Answer, AnswerEvent
    from colibri_cli.chat.command import Chat
    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.plugin_types import Tool
    from colibri_protocol.errors import ColibriError

CARD = ModelCard("tiny", "llama", context_length=4096, can_think=True)


class ScriptedAnswer:
    """An answer that is known before it is given."""

    def __init__(self, events: Iterable[AnswerEvent | Exception]) -> None:
        self._events = deque(events)
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """End at once."""
        self._events = deque([completed("stopped")])

    def abort(self, error: Exception) -> None:
        """Fail at once."""
        self._events = deque([error])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnswerEvent:
        if not self._events:
            raise StopAsyncIteration
        event = self._events.popleft()
        if isinstance(event, Exception):
            raise event
        return event


def completed(finish: str = "stop", prompt: int = 10, tokens: int = 2) -> Completed:
    return Completed(finish, prompt, tokens, 0, 20.0, 50.0, 0.25, 0.1, 0.2)


@dataclass
class ScriptedBackend:
    """Answers with what it is given, in order; remembers what it was asked."""

    answers: deque[list[AnswerEvent | Exception]] = field(default_factory=deque)
    asked: list[tuple[Conversation, Generation]] = field(default_factory=list)
    num_crashes: int = 0
    is_closed: bool = False
    card: ModelCard = CARD

    def will_answer(self, text: str, reasoning: str = "", finish: str = "stop") -> None:
        """Add an answer."""
        thought = [ReasoningDelta(reasoning)] if reasoning else []
        self.answers.append([*thought, TextDelta(text), completed(finish)])

    def will_fail(self, error: Exception, text: str = "") -> None:
        """Add an answer that breaks off."""
        self.answers.append([*([TextDelta(text)] if text else []), error])

    @property
    def prompts(self) -> list[list[tuple[str, str]]]:
        """What was asked, as roles and texts."""
        return [[(m.role, m.content) for m in c.messages] for c, _ in self.asked]

    async def open(self) -> None:
        return None

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        self.asked.append((conversation, generation))
        return ScriptedAnswer(self.answers.popleft())

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        raise NotImplementedError

    async def count(self, conversation: Conversation) -> int:
        raise NotImplementedError

    async def count_text(self, text: str) -> int:
        raise NotImplementedError

    async def counters(self) -> Mapping[str, object]:
        return {}

    async def models(self) -> list[ModelCard]:
        return [self.card]

    async def health(self) -> Health:
        return Health("ready", self.num_crashes)

    def telemetry(self) -> Telemetry:
        return Telemetry()

    async def close(self) -> None:
        self.is_closed = True


class ListInput:
    """Lines from a list."""

    erases = is_typed = False

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = deque(lines)
        self.defaults: list[str] = []

    def assist(self, chat: Chat) -> None:
        """Nobody types."""

    async def read(self, default: str = "") -> str | None:
        """Return the next line."""
        self.defaults.append(default)
        return self._lines.popleft() if self._lines else None


class NotingScreen:
    """Remembers what it was told to show."""

    def __init__(self) -> None:
        self.shows_reasoning = True
        self.is_markdown = True
        self.is_quiet = False
        self.notices: list[str] = []
        self.errors: list[ColibriError] = []
        self.answers: list[str] = []
        self.continued: list[str] = []
        self.statuses: list[str] = []
        self.copied: list[str] = []
        self.views: list[tuple[str, object]] = []
        self.reasoning = ""

    def begin_answer(self, before: str = "") -> None:
        self.answers.append("")
        self.continued.append(before)

    def show_progress(self, done: int, total: int) -> None:
        return None

    def show_status(self, text: str) -> None:
        self.statuses.append(text)

    def show_reasoning(self, text: str) -> None:
        self.reasoning += text

    def show_text(self, text: str) -> None:
        self.answers[-1] += text

    def end_answer(self) -> None:
        return None

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def show_error(self, error: ColibriError) -> None:
        self.errors.append(error)

    def show_message(self, text: str) -> None:
        self.notices.append(f"> {text}")

    def show_answer(self, text: str) -> None:
        self.notices.append(text)

    def show_reasoning_of(self, text: str) -> None:
        self.notices.append(text)

    def show_view(self, name: str, figures: object) -> None:
        self.views.append((name, figures))

    def copy(self, text: str) -> None:
        self.copied.append(text)


@dataclass
class Chatted:
    """What came of a chat."""

    exit_code: int
    screen: NotingScreen
    session: ChatSession
    source: ListInput
    recorder: Recorder


def chat(
    backend: ScriptedBackend,
    lines: Iterable[str],
    *,
    log: Path | None = None,
    system: str = "",
    tools: Callable[[], Mapping[str, Tool]] = dict,
) -> Chatted:
    """Type lines into a chat and return what came of it."""

    async def run() -> Chatted:
        session = ChatSession(backend, Generation(), system=system or None)
        screen, source = NotingScreen(), ListInput(lines)
        recorder = Recorder(log, "tiny", None, screen.notice)
        loop = ChatLoop(session, source, screen, recorder, built_in_commands(), CARD)
        loop.tools.find = tools
        exit_code = await loop.run()
        await recorder.close()
        return Chatted(exit_code, screen, session, source, recorder)

    return asyncio.run(run())
