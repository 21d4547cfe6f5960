"""EngineClient: one living engine process and everything said to it and by it.

Runs on one event loop: a reader of its output, a reader of its error lines, and a watcher of its
end. Knows the wire through `colibri_protocol`; knows neither restarts (`lifecycle`) nor terminals.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import CapabilityMissing, EngineCrashed, EngineHung, EngineStartError
from colibri_cli.logs import ENGINE_LOGGER, NOTICE
from colibri_cli.supervisor.crash_report import CrashReport, StderrTail
from colibri_cli.supervisor.requests import EngineRequest, RequestStream, encode_request, error_of
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.errors import ColibriError, LocalProtocolError, RemoteProtocolError
from colibri_protocol.messages import (
    Accepted,
    Cancel,
    Caps,
    Count,
    Counted,
    EngineMessage,
    EngineStat,
    Finished,
    GatewayMessage,
    ModelInfo,
    Ping,
    Pong,
    Progress,
    Ready,
    RequestFailed,
    Segment,
    StartFailed,
    StatsQuery,
    StatsReport,
    Stop,
    TextDelta,
    TokenLogprobs,
    Word,
)
from colibri_protocol.session import GatewaySession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)
engine_logger = logging.getLogger(ENGINE_LOGGER)

_READ_BYTES: Final = 64 * 1024
# How our engine begins what a user should see at any verbosity; others' lines are details.
_TOLD_LINES: Final = {
    "coli-engine: ERROR: ": logging.ERROR,
    "coli-engine: WARNING: ": logging.WARNING,
    "coli-engine: NOTICE: ": NOTICE,
}
_CLOSE_GRACE_S: Final = 5.0
_BUSY_GRACE_S: Final = 2.0  # nobody waits for the answer it is still busy with
_EXIT_AFTER_EOF_S: Final = 2.0


class EngineClient:
    """Talks to one engine process. Create it with the process, then `await handshake()`.

    Args:
        process: The engine.
        telemetry: Where its figures go; None: a store of its own.

    Attributes:
        num_answers: Requests it has answered to their end.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, telemetry: Telemetry | None = None
    ) -> None:
        self._process = process
        self._session = GatewaySession()
        self._last_ping = 0
        self._streams: dict[int, RequestStream] = {}
        self._answers: dict[int, asyncio.Future[Counted | StatsReport]] = {}
        self._pongs: dict[int, asyncio.Future[None]] = {}
        self._stderr = StderrTail()
        self._is_closing = False
        self._problem: str | None = None
        self._start_failure: StartFailed | None = None
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[CrashReport | None] = loop.create_future()
        self._ended: asyncio.Future[CrashReport] = loop.create_future()
        self._has_stat = False
        self.num_answers = 0
        self.model: Mapping[str, object] | None = None
        self.telemetry = telemetry if telemetry is not None else Telemetry()
        self._watcher = asyncio.create_task(self._watch())

    @property
    def caps(self) -> frozenset[str]:
        """Words the engine announced."""
        return self._session.words

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process can still be asked anything."""
        return not self._ended.done()

    @property
    def is_closing(self) -> bool:
        """Whether we asked the process to end."""
        return self._is_closing

    @property
    def stderr_lines(self) -> tuple[str, ...]:
        """The last lines of its standard error."""
        return self._stderr.lines

    async def handshake(self) -> None:
        """Wait until the engine is loaded; there is no limit, large models take their time.

        Raises:
            EngineStartError: it ended or failed before it was ready.
        """
        report = await asyncio.shield(self._ready)
        if report is not None:
            raise self._start_error(report)

    async def wait_ended(self) -> CrashReport:
        """Wait until the process is gone; returns how it ended."""
        return await asyncio.shield(self._ended)

    def submit(self, request: EngineRequest) -> RequestStream:
        """Send a request and return the stream of its events.

        Raises:
            CapabilityMissing: the engine cannot do what the options ask.
            EngineCrashed: the process is gone.
        """
        self._require_alive()
        request_id = self._session.next_id()
        message = encode_request(request, request_id, self.caps)
        stream = RequestStream(request_id, self._send)
        self._send(message)
        self._streams[request_id] = stream
        return stream

    async def count(self, segments: tuple[Segment, ...]) -> int:
        """Return the number of tokens of a prompt.

        Raises:
            CapabilityMissing: the engine did not announce counting.
        """
        self._require_word(Word.COUNT, "counting tokens")
        request_id = self._session.next_id()
        answer = await self._ask(request_id, Count(request_id, segments))
        assert isinstance(answer, Counted)
        return answer.num_tokens

    async def stats(self) -> Mapping[str, object]:
        """Return the engine's raw counters.

        Raises:
            CapabilityMissing: the engine did not announce them.
        """
        self._require_word(Word.STATS, "raw counters")
        request_id = self._session.next_id()
        answer = await self._ask(request_id, StatsQuery(request_id))
        assert isinstance(answer, StatsReport)
        return answer.data

    async def ping(self) -> None:
        """Wait for one heartbeat; it comes between two steps of the engine."""
        self._require_word(Word.PING, "heartbeats")
        self._last_ping = ping_id = self._last_ping + 1
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs[ping_id] = pong
        try:
            self._send(Ping(ping_id))
            await pong
        finally:
            self._pongs.pop(ping_id, None)

    async def close(self, grace_s: float = _CLOSE_GRACE_S) -> None:
        """End the process: close its input, wait, terminate, wait, kill."""
        self._is_closing = True
        if self._session.open_ids:
            grace_s = min(grace_s, _BUSY_GRACE_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        for end in (self._process.terminate, self._process.kill):
            if await self._ends_within(grace_s):
                return
            _ignoring_lost_process(end)
        await self.wait_ended()

    def kill(self, problem: str) -> None:
        """End the process at once because of `problem`."""
        self._problem = self._problem or problem
        _ignoring_lost_process(self._process.kill)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.wait_ended(), seconds)
        except TimeoutError:
            return False
        return True

    def _send(self, message: GatewayMessage) -> None:
        """Write one frame; frames never mix because writing does not wait."""
        logger.debug("to the engine: %s %d", type(message).__name__, message.id)
        if self._session.is_open:
            self._write(self._session.send(message))
        elif not isinstance(message, Stop | Cancel):
            raise LocalProtocolError(f"{type(message).__name__} to an engine that is not ready")

    def _write(self, data: bytes) -> None:
        stdin = self._process.stdin
        if data and stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def _ask(self, request_id: int, message: Count | StatsQuery) -> Counted | StatsReport:
        self._require_alive()
        answer: asyncio.Future[Counted | StatsReport] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        try:
            self._send(message)
            return await answer
        finally:
            self._answers.pop(request_id, None)

    def _require_alive(self) -> None:
        if self._ended.done():
            raise self._ended.result().to_error()

    def _require_word(self, word: Word, what: str) -> None:
        self._require_alive()
        if word not in self.caps:
            raise CapabilityMissing(f"this engine does not support {what}")

    async def _watch(self) -> None:
        """Read until the process is gone, then tell everybody who waits."""
        stderr = asyncio.create_task(self._read_stderr())
        try:
            await self._read_stdout()
            try:
                await asyncio.wait_for(self._process.wait(), _EXIT_AFTER_EOF_S)
            except TimeoutError:  # alive without output: of no use to anybody
                _ignoring_lost_process(self._process.kill)
                await self._process.wait()
            await asyncio.wait({stderr}, timeout=_EXIT_AFTER_EOF_S)
        finally:
            stderr.cancel()
        report = CrashReport(self._process.returncode, self._stderr.lines, self._problem)
        self._ended.set_result(report)
        if not self._ready.done():
            self._ready.set_result(report)
        self._fail_everything(report)

    async def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_READ_BYTES):
            try:
                messages = self._session.receive_data(chunk)
            except RemoteProtocolError as error:
                for message in error.messages:
                    self._route(message)  # type: ignore[arg-type]  # EngineMessage by contract
                self.kill(f"it broke the protocol ({error.message})")
                return
            self._write(self._session.data_to_send())
            for message in messages:
                self._route(message)
            # Reading does not wait while something is there: those it was for have their turn.
            await asyncio.sleep(0)

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        pending = b""
        while chunk := await self._process.stderr.read(_READ_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._log(line)
            pending = pending[-_READ_BYTES:]
        if pending:
            self._log(pending)

    def _log(self, line: bytes) -> None:
        """Keep a line of the engine's, and log it as severe as it says it is."""
        text = self._stderr.add(line)
        for prefix, level in _TOLD_LINES.items():
            if text.startswith(prefix):
                engine_logger.log(level, "%s", text.removeprefix(prefix))
                return
        engine_logger.info("%s", text)

    def _route(self, message: EngineMessage) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            name = type(message).__name__
            logger.debug("from the engine: %s %s", name, getattr(message, "id", ""))
        if type(message) is TextDelta:  # most of them are
            self._to_stream(message)
            return
        if self.telemetry.feed(message):
            return
        if isinstance(message, Accepted | Progress | TokenLogprobs | TextDelta | Finished):
            self.num_answers += isinstance(message, Finished)
            self._to_stream(message)
        elif isinstance(message, RequestFailed):
            self._request_failed(message)
        elif isinstance(message, Counted | StatsReport):
            answer = self._answers.get(message.id)
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif isinstance(message, Pong):
            pong = self._pongs.get(message.id)
            if pong is not None and not pong.done():
                pong.set_result(None)
        else:
            self._handshake_message(message)

    def _handshake_message(self, message: EngineMessage) -> None:
        if isinstance(message, StartFailed):
            self._start_failure = message
        elif isinstance(message, EngineStat):
            self._has_stat = True
        elif isinstance(message, ModelInfo):
            self.model = message.data
        elif not isinstance(message, Ready | Caps):
            logger.debug("ignored %s", type(message).__name__)
        is_complete = self._has_stat and (self.model is not None or Word.MODEL not in self.caps)
        if is_complete and not self._ready.done():
            self._ready.set_result(None)

    def _to_stream(self, event: Accepted | Progress | TokenLogprobs | TextDelta | Finished) -> None:
        stream = self._streams.get(event.id)
        if stream is None:
            return
        stream.put(event)
        if isinstance(event, Finished):
            del self._streams[event.id]

    def _request_failed(self, failure: RequestFailed) -> None:
        """Tell who asked; failure 0 names nobody, those it ends follow one by one."""
        logger.debug("request %d: %s %s", failure.id, failure.code, failure.detail)
        answer = self._answers.get(failure.id)
        if answer is not None and not answer.done():
            answer.set_exception(error_of(failure, self.model))
        stream = self._streams.pop(failure.id, None)
        if stream is not None:
            stream.put(error_of(failure, self.model))

    def _fail_everything(self, report: CrashReport) -> None:
        error = self._ending_error(report)
        self._session.abandon(error.code)
        for stream in self._streams.values():
            stream.put(error)
        self._streams.clear()
        waiting: list[asyncio.Future[Any]] = [*self._answers.values(), *self._pongs.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _ending_error(self, report: CrashReport) -> ColibriError:
        if self._problem is not None and self._problem.startswith("it did not answer"):
            return EngineHung(report.describe(), hint="look at the engine's log with -v")
        return report.to_error()

    def _start_error(self, report: CrashReport) -> ColibriError:
        failure = self._start_failure
        if failure is not None:
            return EngineStartError(failure.message, code=failure.code, hint=failure.hint)
        error = report.to_error()
        return EngineCrashed(
            f"{error.message} before it was ready",
            exit_code=error.exit_code,
            signal=error.signal,
            stderr_tail=error.stderr_tail,
            hint=error.hint,
        )


def _ignoring_lost_process(action: Callable[[], None]) -> None:
    try:
        action()
    except ProcessLookupError:
        return
