"""The gateway as a process of its own, for benchmarks: a source in it, or a scripted engine.

    python benchmarks/gateway_server.py source|engine [--slots 64]

Prints its port. `engine` starts `tests/fakes/fake_engine.py` with its writes gathered, as an
engine with a batch does; `--as-engine` is how that is run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

from benchmarks.lockstep import Lockstep
from colibri_cli.backends.base import (
    AnswerEvent,
    Backend,
    Completed,
    Generation,
    Health,
    ModelCard,
    Started,
    TextDelta,
)
from colibri_cli.backends.native import NativeBackend
from colibri_cli.gateway.limits import Limits
from colibri_cli.gateway.listeners import TcpAddress
from colibri_cli.gateway.server import Server, ServerOptions
from colibri_cli.gateway.services import ServeSettings, Services
from colibri_cli.gateway.slots import SlotChooser
from colibri_cli.supervisor.admission import GenerationScheduler
from colibri_cli.supervisor.lifecycle import EngineSupervisor
from colibri_cli.supervisor.spawn import EngineLaunch
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from colibri_cli.backends.base import Answer
    from colibri_cli.chat_formats.base import Conversation

_GATHERED = 2048  # bytes of frames written at once
_MODEL = "benchmark"


class SourceAnswer:
    """An answer whose pieces come in lockstep with all others."""

    def __init__(self, source: Lockstep, count: int) -> None:
        self._events: AsyncGenerator[AnswerEvent, None] = self._make(source, count)
        self._error: Exception | None = None
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        return self._events

    def stop(self) -> None:
        """Not needed here."""

    def abort(self, error: Exception) -> None:
        """Make whoever iterates get the error with the next piece."""
        self._error = error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._events.aclose()
        if not self.ended.done():
            self.ended.set_result(True)

    async def _make(self, source: Lockstep, count: int) -> AsyncGenerator[AnswerEvent, None]:
        yield Started(10, 0, None)
        async for piece in source.pieces(count):
            if self._error is not None:
                raise self._error
            yield TextDelta(piece)
        yield Completed("length", 10, count, 0, 100.0, 0.0, 0.1, 0.1, 1.0)


class SourceBackend:
    """A backend without an engine."""

    def __init__(self) -> None:
        self._source = Lockstep()

    async def open(self) -> None:
        """Nothing is to be started."""

    async def close(self) -> None:
        """Nothing is to be stopped."""

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        """Begin an answer of as many pieces as tokens were asked for."""
        del conversation
        return SourceAnswer(self._source, generation.options.max_tokens or 16)

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        """Likewise."""
        del prompt
        return SourceAnswer(self._source, generation.options.max_tokens or 16)

    async def count(self, conversation: Conversation) -> int:
        """Return a number."""
        del conversation
        return 10

    async def count_text(self, text: str) -> int:
        """Return a number."""
        return len(text)

    async def counters(self) -> Mapping[str, object]:
        """Return nothing."""
        return {}

    async def models(self) -> list[ModelCard]:
        """Return a model that can do everything."""
        words = frozenset(word for word in Word if word is not Word.DRAFT)
        return [ModelCard(_MODEL, "llama", 1 << 20, has_chat_format=True, capabilities=words)]

    async def health(self) -> Health:
        """Return that it is ready."""
        return Health("ready")

    def telemetry(self) -> Telemetry:
        """Return no figures."""
        return Telemetry()


async def serve(backend: Backend, num_slots: int) -> None:
    """Serve until killed."""
    settings = ServeSettings(_MODEL, max_tokens=1 << 20, kv_slots=num_slots, max_queue=num_slots)
    services = Services(
        backend=backend,
        scheduler=GenerationScheduler(num_slots, num_slots, 300.0),
        slots=SlotChooser(num_slots),
        settings=settings,
    )
    limits = Limits(idle_s=120.0, head_s=120.0)
    options = ServerOptions(addresses=(TcpAddress("127.0.0.1", 0),), limits=limits)
    server = Server(services, options)
    await backend.open()
    await server.bind()
    address = server.addresses[0]
    assert isinstance(address, TcpAddress)
    print(address.port, flush=True)
    try:
        await server.serve()
    finally:
        await backend.close()


def run_as_engine() -> int:
    """Be the scripted engine, with gathered writes."""
    from tests.fakes import fake_engine

    class GatheringEngine(fake_engine.FakeEngine):
        gathered = b""

        def write(self, data: bytes) -> None:
            self.gathered += data
            if len(self.gathered) >= _GATHERED or len(self.turns) <= 1:
                self.flush()

        def flush(self) -> None:
            data, self.gathered = self.gathered, b""
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

        def receive(self, message: object) -> None:
            super().receive(message)
            self.flush()

        def finish(self, turn: Any, reason: Any) -> None:  # noqa: ANN401 - of the fake
            super().finish(turn, reason)
            self.flush()

    engine = GatheringEngine(fake_engine.load_config(), speaks_caps=True)
    engine.start()
    engine.flush()
    engine.run()
    return 0


def engine_backend(directory: Path, num_slots: int) -> NativeBackend:
    """Return a backend on the scripted engine, which runs where it may."""
    script = directory / "engine"
    script.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).resolve()}' --as-engine\n"
    )
    script.chmod(0o755)
    config = {"num_slots": num_slots, "context_length": 1 << 20}
    launch = EngineLaunch(directory, script, environment={"FAKE_ENGINE": json.dumps(config)})
    return NativeBackend(EngineSupervisor(launch), _MODEL)


def main() -> int:
    """Serve, or be the engine."""
    if sys.argv[1:] == ["--as-engine"]:
        # Beside the client: the core of the server is its own.
        os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
        return run_as_engine()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("kind", choices=["source", "engine"])
    parser.add_argument("--slots", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        backend: Backend = SourceBackend()
        if args.kind == "engine":
            backend = engine_backend(Path(folder), args.slots)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(backend, args.slots))
    return 0


if __name__ == "__main__":
    sys.exit(main())
