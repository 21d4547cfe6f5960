"""The engine process's only loop: lines in, steps, lines out.

Between two steps the inbox is emptied, so STOP, CANCEL, PING and the end of input wait for one step
at most; while nothing is being answered the loop sleeps in the inbox. What a step produced leaves
in one write.

The end: END_OF_INPUT lets what was asked be answered first; TERMINATE ends replies softly and
leaves; a closed output leaves at once, for nobody would read the rest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from colibri_engine.admission import extended, refusal
from colibri_engine.errors import EXIT_FAILURE
from colibri_engine.intake import Encoded
from colibri_engine.streams import Event, write_all
from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.messages import (
    Accepted,
    Cancel,
    Count,
    Counted,
    ErrorCode,
    Ping,
    Pong,
    Progress,
    RequestFailed,
    StatsQuery,
    StatsReport,
    Stop,
    Submit,
    SubmitExtended,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from queue import SimpleQueue

    from colibri_engine.engine import Engine
    from colibri_engine.intake import Intake
    from colibri_protocol.messages import EngineMessage, ModelInfo
    from colibri_protocol.session import EngineSession

logger = logging.getLogger(__name__)

WORDS: Final = frozenset(Word)  # what CAPS announces


class Worker:
    """Connects one engine with one gateway.

    Args:
        engine: The engine.
        intake: Where prompts become ids.
        session: The engine's side of the protocol, not yet greeted.
        inbox: Bytes of the gateway and events, from `streams`.
        output: File descriptor that the lines go to.
        model_info: What follows the first telemetry when the gateway knows MODEL.
    """

    def __init__(
        self,
        engine: Engine,
        intake: Intake,
        session: EngineSession,
        inbox: SimpleQueue[object],
        output: int,
        model_info: ModelInfo,
    ) -> None:
        self._engine = engine
        self._session = session
        self._inbox = inbox
        self._output = output
        self._model_info = model_info
        self._intake = intake
        self._encoding: dict[int, Stop | Cancel | None] = {}  # prompts there, and their end
        self._tells_progress = Word.PROGRESS in session.words
        self._is_deaf = False
        self._is_leaving = False
        self._exit_code = 0

    def run(self) -> int:
        """Serve until there is nothing left to do; return the exit code."""
        try:
            self._greet()
            while not (self._is_leaving and self._engine.is_idle and not self._encoding):
                self._take_in()
                self._send(self._engine.step())
        except BrokenPipeError:
            logger.info("the gateway is gone")
        finally:
            self._engine.close()
        return self._exit_code

    def _greet(self) -> None:
        telemetry = self._engine.telemetry
        write_all(self._output, self._session.greet(telemetry.stat()))
        self._send(telemetry.greeting())
        if Word.MODEL in self._session.words:
            self._send([self._model_info])

    def _send(self, messages: list[EngineMessage]) -> None:
        if not messages:
            return
        if not self._tells_progress:
            messages = [m for m in messages if not isinstance(m, Progress)]
        write_all(self._output, b"".join([self._session.send(m) for m in messages]))

    def _take_in(self) -> None:
        """Act on all that has arrived; wait for something while there is no step to make."""
        if self._engine.is_idle:
            self._act(self._inbox.get())
        while not self._inbox.empty():
            self._act(self._inbox.get())

    def _act(self, item: object) -> None:
        match item:
            case bytes():
                self._receive(item)
            case Encoded():
                self._enter(item)
            case Event.END_OF_INPUT:
                self._end_input()
            case Event.OUTPUT_CLOSED:
                raise BrokenPipeError
            case Event.INTERRUPT | Event.TERMINATE:
                for request_id, end in self._encoding.items():
                    self._encoding[request_id] = end or Stop(request_id)
                self._send(self._engine.stop_all())
                self._is_leaving = self._is_leaving or item is Event.TERMINATE
            case _:
                raise AssertionError(f"{item!r} in the inbox")

    def _receive(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            messages = self._session.receive_data(data)
        except RemoteProtocolError as exc:
            self._receive_messages(exc.messages)
            self._give_up(exc)
        else:
            self._receive_messages(messages)

    def _receive_messages(self, messages: Iterable[object]) -> None:
        for message in messages:
            self._dispatch(message)
        answers = self._session.data_to_send()
        if answers:
            write_all(self._output, answers)

    def _end_input(self) -> None:
        self._is_leaving = True
        if self._is_deaf:
            return
        try:
            self._session.receive_eof()
        except RemoteProtocolError as exc:
            self._give_up(exc)

    def _give_up(self, error: RemoteProtocolError) -> None:
        """Stop listening to a gateway that cannot be understood; answer what it has asked."""
        logger.error("the gateway broke the protocol: %s", error)
        self._is_deaf = True
        self._is_leaving = True
        self._exit_code = EXIT_FAILURE
        self._send([RequestFailed(0, ErrorCode.BAD_FRAME, str(error))])

    def _dispatch(self, message: object) -> None:
        match message:
            case Submit():
                guide = message.grammar if self._engine.uses_guides else None
                self._encode(extended(message), guide)
            case SubmitExtended() | Count():
                self._encode(message)
            case Stop() | Cancel() if message.id in self._encoding:
                self._end_encoding(message)
            case Stop():
                self._send(self._engine.stop(message.id))
            case Cancel():
                self._send(self._engine.cancel(message.id))
            case StatsQuery():
                self._send([StatsReport(message.id, self._engine.report())])
            case Ping():
                self._send([Pong(message.id)])
            case _:
                raise AssertionError(f"{message!r} has no reader")

    def _encode(self, message: SubmitExtended | Count, guide: bytes | None = None) -> None:
        self._encoding[message.id] = None
        self._intake.put(message, guide)

    def _end_encoding(self, end: Stop | Cancel) -> None:
        """End a request that is no sequence yet."""
        self._encoding[end.id] = end
        if isinstance(end, Cancel):
            if self._intake.withdraw(end.id):
                del self._encoding[end.id]
            self._send([RequestFailed(end.id, ErrorCode.CANCELLED)])

    def _enter(self, encoded: Encoded) -> None:
        """Take a prompt that has come back as ids, unless it is no longer wanted."""
        message = encoded.message
        end = self._encoding.pop(message.id)
        if isinstance(end, Cancel):
            return  # and already answered
        if encoded.error is not None:
            self._send([refusal(message.id, encoded.error)])
        elif isinstance(message, Count):
            self._send([Counted(message.id, encoded.ids.size)])
        else:
            answer = self._engine.submit(message, encoded.ids, encoded.constraint, encoded.guide)
            self._send(answer)
            if end is not None and isinstance(answer[0], Accepted):
                self._send(self._engine.stop(message.id))
