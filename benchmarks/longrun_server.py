"""The server of `longrun.py` as a process of its own: figures on demand, nothing but the server.

    python benchmarks/longrun_server.py MODEL [--engine-bin PATH] [--slots 4]

Runs what `coli serve` runs. Prints a line of JSON with its port when the engine is ready, and one
for every line of its input: `figures`; `trim` gives free memory back to the system first; `trace`
starts to note where objects are made, and from then on tells which places hold more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import sys
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

from benchmarks.gateway import resident_mb
from colibri_cli.backends.native import NativeBackend
from colibri_cli.gateway.access_log import LOGGER_NAME
from colibri_cli.gateway.dialects.responses_store import ResponseStore
from colibri_cli.gateway.listeners import TcpAddress
from colibri_cli.gateway.server import ServerOptions
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.serving import ServePlan, ServerRun
from colibri_cli.supervisor.lifecycle import EngineSupervisor
from colibri_cli.supervisor.spawn import EngineLaunch

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.supervisor.lifecycle import EngineState

_MAX_TOKENS: Final = 64
_TRACED: Final = 15  # places told of


class Observer:
    """Answers what is asked about the server."""

    def __init__(self, run: ServerRun, supervisor: EngineSupervisor) -> None:
        self._run = run
        self._supervisor = supervisor
        self._snapshot: tracemalloc.Snapshot | None = None

    def answer(self, question: str) -> dict[str, Any]:
        """Return the figures, after doing what the question is about."""
        growth: list[str] = []
        if question == "trim":
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # not every C library has it
                ctypes.CDLL(None).malloc_trim(0)
        if question == "trace":
            growth = self._growth()
        return self._figures() | {"growth": growth}

    def _figures(self) -> dict[str, Any]:
        scheduler, engine = self._run.services.scheduler, self._supervisor.current
        return {
            "memory_mb": resident_mb(os.getpid()),
            "engine_mb": 0.0 if engine is None else _resident_or_none(engine.pid),
            "engine_pid": None if engine is None else engine.pid,
            "engine_state": self._supervisor.state.value,
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "tasks": len(asyncio.all_tasks()),
            "task_names": sorted(str(task.get_coro()) for task in asyncio.all_tasks()),
            "objects": len(gc.get_objects()),
            "connections": self._run.server.num_connections,
            "active": scheduler.active,
            "queued": scheduler.queued,
            "admission": asdict(scheduler.counters),
            "engines_lost": self._supervisor.num_crashes,
        }

    def _growth(self) -> list[str]:
        """Return which places hold more than when this was asked first."""
        gc.collect()
        if not tracemalloc.is_tracing():
            tracemalloc.start(5)
        now = tracemalloc.take_snapshot()
        now = now.filter_traces([tracemalloc.Filter(inclusive=False, filename_pattern="*trace*")])
        if self._snapshot is None:
            self._snapshot = now
            return []
        found = now.compare_to(self._snapshot, "traceback")
        return [f"{s}\n" + "\n".join(s.traceback.format()) for s in found[:_TRACED]]


def _resident_or_none(pid: int) -> float:
    try:
        return resident_mb(pid)
    except OSError:  # it has just ended
        return 0.0


async def serve(args: argparse.Namespace) -> None:
    """Serve until the input ends."""
    launch = EngineLaunch(args.model, args.engine_bin, environment=json.loads(args.environment))
    made: list[EngineSupervisor] = []

    def backend(on_state: Callable[[EngineState], None]) -> NativeBackend:
        made.append(EngineSupervisor(launch, on_state=on_state))
        return NativeBackend(made[0], "long")

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    plan = ServePlan(
        options=ServerOptions(addresses=(TcpAddress("127.0.0.1", 0),)),
        settings=ServeSettings("long", max_tokens=_MAX_TOKENS, kv_slots=args.slots),
        drain_s=1.0,
        on_bound=lambda _: None,
        on_ready=lambda *_: ready.set_result(None),
    )
    run = ServerRun(backend, plan)
    run.services.responses = ResponseStore(max_responses=64)  # full soon: what is kept is no leak
    serving = asyncio.create_task(run.run())
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    address = run.server.addresses[0]
    assert isinstance(address, TcpAddress)
    observer = Observer(run, made[0])
    print(json.dumps({"port": address.port}), flush=True)
    questions = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    while question := await questions.readline():
        if serving.done():
            await serving
        print(json.dumps(observer.answer(question.decode().strip())), flush=True)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def main() -> int:
    """Serve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine-bin", type=Path)
    parser.add_argument("--environment", default="{}", metavar="JSON")
    parser.add_argument("--slots", type=int, default=4)
    args = parser.parse_args()
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    asyncio.run(serve(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
