"""Asking one question: on a running server or an engine of our own, once, and keeping it."""

from __future__ import annotations

import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from colibri_cli.logs import lines_wait
from colibri_cli.one_shot.prompt import is_terminal
from colibri_cli.sampling import thinking_of
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.backends.base import Backend, Generation
    from colibri_cli.chat.conversation import ChatSession
    from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn
    from colibri_cli.one_shot.output import Printer
    from colibri_cli.one_shot.prompt import Prompt
    from colibri_protocol.settings import ResolvedSettings

_USUAL: Final = ("127.0.0.1", 8000)
_LISTENS_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question and all that goes with it.

    Args:
        settings: Effective settings of the command.
        generation: How to generate.
        prompt: What is asked.
        system: System text; None: that of the template or of the conversation gone on with.
        resumed: Conversation of the log to go on with.
        is_plain: The prompt goes on as plain text, without roles.
        log_file: Where it is kept; None keeps nothing.
        server: Address of the server to ask; None: the usual one, if there is any.
        own_engine: Ask no server.
        is_quiet: Say nothing but the answer and errors.
    """

    settings: ResolvedSettings
    generation: Generation
    prompt: Prompt
    system: str | None = None
    resumed: tuple[LoggedConversation, list[LoggedTurn]] | None = None
    is_plain: bool = False
    log_file: Path | None = None
    server: str | None = None
    own_engine: bool = False
    is_quiet: bool = False

    def session(self, backend: Backend, *, thinking: bool | None) -> ChatSession:
        """Return the conversation in which it is asked."""
        from colibri_cli.chat.conversation import ChatSession

        session = ChatSession(backend, self.generation, thinking=thinking)
        if self.resumed is not None:
            session.resume(self.resumed[1])
        session.system = self.system or self.prompt.system or session.system
        session.files = list(self.prompt.files)
        return session


async def ask(question: Question, printer: Printer) -> None:
    """Ask, print the answer as it comes, and keep it."""
    backend, endpoint = await _opened(question)
    try:
        card = (await backend.models())[0]
        session = None
        if question.is_plain:
            answer = await backend.complete(question.prompt.text, question.generation)
        else:
            thinking = thinking_of(question.settings, card)
            asked = question if endpoint is None else _for_server(question, backend)
            session = asked.session(backend, thinking=thinking)
            answer = await session.ask(question.prompt.text)
        with lines_wait():
            try:
                async with answer:
                    async for event in answer:
                        printer.take(event)
            finally:
                printer.end_line()
        if session is not None:
            session.keep(printer.text, printer.reasoning, printer.done)
            await _keep(question, session, card.id, endpoint)
        printer.finish(card)
    finally:
        await backend.close()


def _for_server(question: Question, backend: Backend) -> Question:
    """Return what is asked of a server, if the backend is one."""
    from colibri_cli.backends.attaching import with_servers_limit
    from colibri_cli.backends.upstreams.backend import UpstreamBackend

    if not isinstance(backend, UpstreamBackend):
        return question
    generation = with_servers_limit(question.settings, backend, question.generation)
    return replace(question, generation=generation)


async def _opened(question: Question) -> tuple[Backend, str | None]:
    """Return who answers, ready, and the address of the server if it is one."""
    server = None
    if question.server is not None or (not question.own_engine and _somebody_listens()):
        from colibri_cli.backends.attaching import attached_backend

        def tell(text: str) -> None:
            if not question.is_quiet:
                say(text)

        server = await attached_backend(question.settings, question.server, tell)
    if server is not None:
        return server, server.url
    from colibri_cli.backends.opening import native_backend

    # One answer has no next turn, and saving it would take the place of a conversation that has.
    extra = {} if question.settings.is_given("kv_save") else {"kv_save": 0}
    backend = native_backend(question.settings, extra=extra)
    with _waiting(question):
        try:
            await backend.open()
        except BaseException:
            await backend.close()
            raise
    return backend, None


def _somebody_listens() -> bool:
    """Whether anybody may be asked at the usual address; finding out costs next to nothing."""
    try:
        with socket.create_connection(_USUAL, timeout=_LISTENS_S):
            return True
    except OSError:
        return False


async def _keep(question: Question, session: ChatSession, model: str, endpoint: str | None) -> None:
    """Write the answer into the log."""
    turn = session.last
    if question.log_file is None or turn is None or not turn.answer:
        return
    from colibri_cli.chat.recorder import Recorder

    def warn(text: str) -> None:
        say(f"coli: {text.partition(';')[0]}; the answer is not kept")

    recorder = Recorder(question.log_file, model, endpoint, warn)
    if question.resumed is not None:
        recorder.resume(replace(question.resumed[0], model=model))
    await recorder.keep(session.logged(turn))
    await recorder.close()


def _waiting(question: Question) -> AbstractContextManager[object]:
    """Show on a terminal that the model is being loaded."""
    if question.is_quiet or not is_terminal(sys.stderr):
        return nullcontext()
    from colibri_cli.console import spinner

    return spinner("loading the model")
