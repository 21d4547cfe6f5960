"""`vllm serve` as the server behind: started, awaited, watched, started again, and ended with us.

The program is the user's; we speak to it as to any upstream server, on a port of this machine that
nobody else is told. What it writes goes to the log, and its last lines explain its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.upstreams.kinds import VLLM
from colibri_cli.backends.upstreams.served import ServedUpstream, UpstreamTarget
from colibri_cli.errors import EngineStartError
from colibri_cli.supervisor.crash_report import CrashReport, StderrTail
from colibri_cli.supervisor.lifecycle import EngineState, RestartPolicy
from colibri_cli.supervisor.spawn import inherited_environment, own_process_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_protocol.errors import ColibriError

logger = logging.getLogger(__name__)

_HOST: Final = "127.0.0.1"
_GRACE_S: Final = 20.0  # it frees GPUs and ends its workers in that time
_LOOK_S: Final = 0.05
_LAST_WORDS_S: Final = 2.0  # for the rest of the output, should a worker have left the group


@dataclass(frozen=True, slots=True)
class VllmLaunch:
    """How it is started.

    Args:
        program: Path of `vllm`.
        model: What it loads: a folder, or a name it knows.
        name: The served name.
        arguments: Further ones.
    """

    program: str
    model: str
    name: str
    arguments: tuple[str, ...] = ()

    def argv(self, port: int) -> list[str]:
        """Return the whole command line."""
        own = ["--host", _HOST, "--port", str(port), "--served-model-name", self.name]
        own.append("--enable-prompt-tokens-details")  # else answers say that nothing was reused
        return [self.program, "serve", self.model, *own, *self.arguments]


class VllmProcess:
    """One process of it and its workers.

    Args:
        process: Just started, in a session of its own.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tail = StderrTail()
        self._relay = asyncio.create_task(self._relay_lines())

    @classmethod
    async def start(cls, launch: VllmLaunch, port: int) -> VllmProcess:
        """Start it.

        Raises:
            EngineStartError: it cannot be run.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.argv(port),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env=inherited_environment(for_hub=True),
                **own_process_group(),  # answers are finished first
            )
        except OSError as error:
            raise EngineStartError(
                f"{launch.program} cannot be started ({error.strerror})",
                hint="name the program with --engine-bin",
            ) from error
        return cls(process)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait(self) -> CrashReport:
        """Wait for its end, end what workers it left behind, and return how it ended."""
        return_code = await self._exited()
        await self._end_workers()
        return CrashReport(return_code, self._tail.lines)

    async def stop(self) -> None:
        """End it: asked first, then with all its workers."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited(), _GRACE_S)
        await self._end_workers()
        await self._exited()

    async def _exited(self) -> int:
        """Wait for the end of the process itself and return its code.

        Not with asyncio's `wait`: that waits for the end of the output too, which workers that
        outlive the process keep open for ever.
        """
        while (return_code := self._process.returncode) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        return return_code

    async def _end_workers(self) -> None:
        """Kill all of its group and take what they still had to say.

        They hold the memory of the GPUs, so that the next one could not start beside them.
        """
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.wait({self._relay}, timeout=_LAST_WORDS_S)
        self._relay.cancel()

    async def _relay_lines(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        rest = b""
        while piece := await self._process.stdout.read(64 * 1024):
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-64 * 1024 :]  # progress bars are lines without end
            for line in lines:
                logger.info("vllm: %s", self._tail.add(line))
        self._tail.add(rest)


class ServedVllm(ServedUpstream):
    """Answers from a `vllm serve` of our own.

    Args:
        launch: How it is started.
        on_state: Called with every new state.
        policy: When and how fast it is started again.
    """

    def __init__(
        self,
        launch: VllmLaunch,
        on_state: Callable[[EngineState], None] | None = None,
        policy: RestartPolicy | None = None,
    ) -> None:
        self._port = _free_port()
        target = UpstreamTarget(f"http://{_HOST}:{self._port}", kind=VLLM, model=launch.name)
        super().__init__(target, on_state)
        self._launch = launch
        self._policy = policy or RestartPolicy()
        self._process: VllmProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._failure: ColibriError | None = None

    @property
    def pid(self) -> int:
        """Process id of the running one."""
        assert self._process is not None, "open comes first"
        return self._process.pid

    @property
    def last_end(self) -> str | None:
        """How it was lost last."""
        return None if self._end is None else f"{self._end}; starting it again"

    @property
    def failure(self) -> ColibriError | None:
        """Why it was given up."""
        return self._failure

    async def open(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            EngineStartError: it cannot be run.
            EngineCrashed: it ended while loading.
        """
        self._process = await VllmProcess.start(self._launch, self._port)
        opening = asyncio.create_task(super().open())
        ending = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise ending.result().to_error()
            opening.result()
        finally:
            for task in (opening, ending):
                task.cancel()
            await asyncio.gather(opening, ending, return_exceptions=True)
        self._keeper = asyncio.create_task(self._keep_alive(self._process))

    async def close(self) -> None:
        """End it."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await super().close()
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    def _tell_wait(self, problem: str) -> None:
        logger.info("%s", problem)  # it is loading, which was to be expected

    async def _keep_alive(self, process: VllmProcess) -> None:
        """Start it again whenever it ends, until too many starts in a row failed."""
        failures = 0
        while True:
            began = time.monotonic()
            report = await process.wait()
            if time.monotonic() - began >= self._policy.settled_after_s:
                failures = 0
            failures += 1
            self._note(report.describe())
            self._end = report.explain()  # even if the loss was seen from outside first
            if failures > self._policy.max_failures:
                break
            await asyncio.sleep(self._policy.delay_s(failures))
            try:
                self._process = process = await VllmProcess.start(self._launch, self._port)
            except EngineStartError as error:
                self._failure = error
                break
        self._failure = self._failure or report.to_error()
        self._enter(EngineState.FAILED)


def _free_port() -> int:
    """Return a port that is free now; were it taken meanwhile, vLLM would say so and end."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
