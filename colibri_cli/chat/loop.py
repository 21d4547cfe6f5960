"""The chat loop: read a line, act on it, show the answer; survives refused turns and dead engines.

Ctrl-C during an answer stops it, a second one leaves; at the prompt it clears the line, twice on
an empty line leaves. An engine that dies costs one turn; the loop goes on with the next engine and
remembers that the session was not clean.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.base import (
    Completed,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
)
from colibri_cli.chat.attaching_files import mentioned_files
from colibri_cli.chat.conversation import Round
from colibri_cli.chat.line_input import at_interrupt
from colibri_cli.chat.slash import Invocation, Message, UnknownCommand, parse_line
from colibri_cli.chat.tools import MAX_ROUNDS, ToolBox, result_of, tool_call
from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallArguments,
    CallFinished,
    CallStarted,
)
from colibri_cli.errors import EXIT_ENGINE, EXIT_OK, ServerRefused, SupervisorError, UsageError
from colibri_cli.logs import lines_wait
from colibri_cli.terminal.answer_text import cut_notice, statistics_line
from colibri_protocol.errors import ColibriError, ContextLengthExceeded
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from colibri_cli.backends.base import Answer, AnswerEvent, Backend, ModelCard
    from colibri_cli.chat.command import CommandTable
    from colibri_cli.chat.conversation import ChatSession, Turn
    from colibri_cli.chat.line_input import LineInput
    from colibri_cli.chat.recorder import Recorder
    from colibri_cli.chat.screen import Screen
    from colibri_cli.chat_formats.base import ToolCall
    from colibri_protocol.settings import ResolvedSettings

    Begin = Callable[[], Awaitable[Answer]]

_MAX_WAIT_S: Final = 600  # a server that asks for more patience is refused


@dataclass(slots=True)
class _Heard:
    """What came of an answer until its end; `is_left`: the user did not wait for that."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    done: Completed | None = None
    is_left: bool = False
    _open: tuple[str, str] | None = None
    _pieces: list[str] = field(default_factory=list)

    @property
    def wants_results(self) -> bool:
        """Whether it ended with calls that are to be answered."""
        is_whole = self.done is not None and self.done.finish == "stop"
        return bool(self.calls) and is_whole and not self.is_left

    def note_call(self, event: AnswerEvent) -> None:
        """Take an event of a call; one that breaks off is none."""
        if isinstance(event, CallStarted):
            self._open = (event.id or f"call_{len(self.calls)}", event.name)
            self._pieces.clear()
        elif isinstance(event, CallArguments):
            self._pieces.append(event.text)
        elif isinstance(event, CallFinished | CallAborted) and self._open is not None:
            if isinstance(event, CallFinished):
                self.calls.append(tool_call(*self._open, "".join(self._pieces)))
            self._open = None


class ChatLoop:
    """One interactive session; what commands may use of it is `command.Chat`.

    Args:
        session: The conversation.
        source: Where lines come from.
        screen: Where answers go.
        recorder: The log.
        commands: What may be typed behind a slash.
        card: The model.
    """

    def __init__(
        self,
        session: ChatSession,
        source: LineInput,
        screen: Screen,
        recorder: Recorder,
        commands: CommandTable,
        card: ModelCard,
    ) -> None:
        self.session = session
        self.source = source
        self.screen = screen
        self.recorder = recorder
        self.commands = commands
        self.card = card
        self.shows_figures = True
        self.api_key: str | None = None
        self.settings: ResolvedSettings | None = None
        self._was_interrupted = False  # the next Ctrl-C leaves
        self._is_over = False
        self._is_quiet = screen.is_quiet
        self.tools = ToolBox()
        session.tools = lambda: self.tools.use
        source.assist(self)

    @property
    def backend(self) -> Backend:
        """Who answers."""
        return self.session.backend

    async def run(self) -> int:
        """Go on until the user leaves; return the exit code."""
        while not self._is_over:
            try:
                line = await self.source.read()
            except KeyboardInterrupt:
                if self._was_interrupted:
                    break
                self._was_interrupted = True
                self.screen.notice("Ctrl-C again, Ctrl-D or /exit leaves")
                continue
            self._was_interrupted = False
            if line is None:
                break
            await self._act(line)
        return await self._exit_code()

    def leave(self) -> None:
        """End the session."""
        self._is_over = True

    async def ask(self, text: str) -> None:
        """Send a message, show the answer and keep it."""
        await self._turn(lambda: self.session.ask(text))

    async def ask_again(self, turn: Turn) -> None:
        """Send a message of before with its own files."""
        await self._turn(lambda: self.session.ask(turn.prompt, turn.attachments))

    async def continue_answer(self) -> None:
        """Let the last answer go on."""
        last = self.session.last
        await self._turn(self.session.more, before=last.answer if last is not None else "")

    async def switch(self, backend: Backend, endpoint: str | None) -> None:
        """Go on with another backend, which is open; the conversation stays."""
        self.card = (await backend.models())[0]
        old, self.session.backend = self.session.backend, backend
        self.recorder.model, self.recorder.endpoint = self.card.id, endpoint
        await old.close()

    async def _act(self, line: str) -> None:
        """Do what a line says."""
        meaning = parse_line(line, self.commands)
        if meaning is None:
            return
        if self.source.erases:
            self.screen.show_message(line.strip("\n") if isinstance(meaning, Message) else line)
        try:
            if isinstance(meaning, Message):
                await self._send(meaning)
            elif isinstance(meaning, UnknownCommand):
                self._refuse(meaning.name)
            elif isinstance(meaning, Invocation):
                self.screen.is_quiet = False  # what a command says was asked for
                await meaning.command.run(self, meaning.argument)
        except ColibriError as error:
            self.screen.show_error(error)
        finally:
            self.screen.is_quiet = self._is_quiet

    async def _send(self, message: Message) -> None:
        if not message.is_literal:
            for file in mentioned_files(message.text):
                self.session.files.append(file)
                self.screen.notice(f"goes along: {file.name} ({len(file.text):,} characters)")
        await self.ask(message.text)

    def _refuse(self, name: str) -> None:
        near = nearest(name.lstrip("/"), {command.name for command in self.commands})
        meant = f"did you mean /{near}? " if near else ""
        hint = f"{meant}/help lists them, // sends a message that begins with a slash"
        self.screen.show_error(UsageError(f"there is no command {name}", hint=hint))

    async def _turn(self, begin: Begin, before: str = "") -> None:
        """Ask, show the answer and keep it; `before` is what it continues."""
        self.screen.is_quiet = self._is_quiet
        failure: ColibriError | None = None
        with lines_wait():
            self.screen.begin_answer(before)
            try:
                if not await self._answered(begin):
                    self._is_over = True
            except ColibriError as error:
                failure = error
            finally:
                self.screen.end_answer()
        if failure is not None:
            await self._failed(failure)

    async def _failed(self, error: ColibriError) -> None:
        """Tell why there is no answer, and what can be done."""
        self.session.drop()
        self.screen.show_error(error)
        if isinstance(error, ContextLengthExceeded) and self.session.turns:
            self.screen.notice("/reset begins a new conversation, /undo takes messages back")
        elif self.session.failed is not None and not isinstance(error, SupervisorError):
            self.screen.notice("the message was not answered; /retry sends it once more")
        if isinstance(error, SupervisorError) and not await self._comes_back(error):
            self._is_over = True

    async def _answered(self, begin: Begin) -> bool:
        """Show an answer; once, wait as long as an overloaded server asks for. False: leave."""
        try:
            return await self._shown(begin)
        except ServerRefused as error:
            wait_s = error.retry_after_s
            if wait_s is None or wait_s > _MAX_WAIT_S or self.session.last is None:
                raise
            if not await self._waited(error, wait_s):
                raise
        turn = self.session.last
        if turn.answer:
            return await self._shown(begin)
        self.session.drop()
        return await self._shown(lambda: self.session.ask(turn.prompt, turn.attachments))

    async def _waited(self, error: ServerRefused, seconds: float) -> bool:
        """Count down; False when Ctrl-C ended it."""
        ended = asyncio.Event()
        with self._on_interrupt(ended.set):
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            while (left := end - loop.time()) > 0 and not ended.is_set():
                self.screen.show_status(f"{error.message} · again in {left:.0f} s")
                try:
                    async with asyncio.timeout(min(left, 1.0)):
                        await ended.wait()
                except TimeoutError:
                    continue
        return not ended.is_set()

    async def _shown(self, begin: Begin) -> bool:
        """Show an answer to its end and keep it; False when the user left meanwhile.

        Calls of tools are run, as far as the user lets them, and the answer goes on behind them.
        """
        heard = await self._listened(begin)
        turn = self.session.turns[-1]
        while heard.wants_results:
            called = await self._called(heard)
            if called is None:
                return True
            self.screen.begin_answer()
            heard = await self._listened(partial(self.session.answer_with, called))
        self.session.keep("".join(heard.texts), "".join(heard.thoughts), heard.done)
        if turn.answer:
            await self.recorder.keep(self.session.logged(turn))
        if heard.is_left:
            return False
        if heard.done is not None:
            if not heard.texts and heard.done.finish == "stop":
                said = "the model only thought" if heard.thoughts else "the model ended at once"
                self.screen.notice(f"nothing came: {said}")
            self._show_end(heard.done, is_empty=not turn.answer)
        return True

    async def _listened(self, begin: Begin) -> _Heard:
        """Show what comes until it ends, Ctrl-C ends it, or the user leaves."""
        heard = _Heard()
        answer = await begin()
        async with answer:
            shown = asyncio.create_task(self._show_events(answer, heard))
            try:
                with self._interrupts(answer, shown):
                    await asyncio.wait({shown})
            except BaseException:
                shown.cancel()
                raise
            heard.is_left = shown.cancelled()
            if not heard.is_left:
                shown.result()
            self.screen.end_answer()
        return heard

    async def _called(self, heard: _Heard) -> Round | None:
        """Run the calls of an answer; None: the turn ends here without an answer."""
        if len(self.session.turns[-1].rounds) >= MAX_ROUNDS:
            self.screen.notice(f"ended: the model called tools {MAX_ROUNDS} times in a row")
            self.session.drop()
            return None
        try:
            results = [await result_of(self, call, self._on_interrupt) for call in heard.calls]
        except KeyboardInterrupt:
            self.screen.notice("stopped before the answer; /retry asks again")
            self.session.drop()
            return None
        return Round("".join(heard.texts), tuple(heard.calls), tuple(results))

    async def _show_events(self, answer: Answer, heard: _Heard) -> None:
        async for event in answer:
            if isinstance(event, TextDelta):
                heard.texts.append(event.text)
                self.screen.show_text(event.text)
            elif isinstance(event, ReasoningDelta):
                heard.thoughts.append(event.text)
                self.screen.show_reasoning(event.text)
            elif isinstance(event, PrefillProgress):
                self.screen.show_progress(event.done, event.total)
            elif isinstance(event, Completed):
                heard.done = event
            else:
                heard.note_call(event)

    def _show_end(self, done: Completed, *, is_empty: bool) -> None:
        if done.finish == "stopped" and is_empty:
            self.screen.notice("stopped before the answer began; /retry asks again, Ctrl-C leaves")
        elif done.finish == "stopped":
            self.screen.notice("stopped; /more continues, Ctrl-C leaves")
        cut = cut_notice(done, self.card.context_length)
        if cut is not None:
            self.screen.notice(f"{cut}; /more continues")
        if self.shows_figures:
            self.screen.notice(statistics_line(done, has_experts=self.card.num_experts != 0))

    async def _comes_back(self, crash: SupervisorError) -> bool:
        """Wait for the next engine after a crash; False when there will be none."""
        self.screen.notice("starting a fresh engine")
        try:
            await self.backend.models()
        except ColibriError as error:
            if error.message != crash.message:
                self.screen.show_error(error)
            self.screen.notice("it does not start again")
            return False
        self.screen.notice("ready again; the last message was not answered, /retry sends it again")
        return True

    async def _exit_code(self) -> int:
        health = await self.backend.health()
        if health.num_crashes == 0:
            return EXIT_OK
        times = "once" if health.num_crashes == 1 else f"{health.num_crashes} times"
        self.screen.notice(f"the engine ended unexpectedly {times} during this chat")
        return EXIT_ENGINE

    @contextmanager
    def _interrupts(self, answer: Answer, shown: asyncio.Task[Completed | None]) -> Iterator[None]:
        """Let Ctrl-C stop the answer, and a second one leave without waiting for its end."""

        def interrupt() -> None:
            if self._was_interrupted:
                shown.cancel()
            self._was_interrupted = True
            answer.stop()

        with self._on_interrupt(interrupt):
            yield

    @contextmanager
    def _on_interrupt(self, act: Callable[[], object]) -> Iterator[None]:
        """Do something at Ctrl-C.

        Where nobody types, Ctrl-C ends the program as everywhere else.
        """
        if not self.source.is_typed:
            yield
            return
        with at_interrupt(act):
            yield
