"""A worker between two real pipes, with the fake model behind it."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from colibri_engine.grammar import GrammarCompiler
from colibri_engine.intake import Intake
from colibri_engine.streams import start_reader
from colibri_engine.worker import WORDS, Worker
from colibri_protocol.messages import ModelInfo
from colibri_protocol.session import EngineSession
from tests.engine.engine_rig import Rig
from tests.engine.gateway_end import LIMIT_S, GatewayEnd
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer

if TYPE_CHECKING:
    from tests.fakes.fake_model import FakeModel


class WorkerRig(GatewayEnd):
    """Runs the worker in a thread; use as a context."""

    def __init__(
        self,
        model: FakeModel | None = None,
        *,
        has_caps: bool = True,
        encoder: Any = None,  # noqa: ANN401 - any fake tokenizer
        **rig: Any,  # noqa: ANN401 - arguments of Rig
    ) -> None:
        worker_input, to_worker = os.pipe()
        from_worker, worker_output = os.pipe()
        super().__init__(from_worker, to_worker)
        self.rig = Rig(model=model, **rig)
        self.inbox: SimpleQueue[object] = SimpleQueue()
        self.exit_code: int | None = None
        self._worker_fds = (worker_input, worker_output)
        vocabulary: Any = ByteTokenizer()
        compiler = GrammarCompiler(vocabulary, VOCAB_SIZE, frozenset({EOS}))
        self._worker = Worker(
            self.rig.engine,
            Intake(encoder or ByteTokenizer(), self.inbox, compiler),
            EngineSession(WORDS if has_caps else ()),
            self.inbox,
            worker_output,
            ModelInfo({"id": "fake"}),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.exit_code = self._worker.run()
        finally:
            os.close(self._worker_fds[1])

    def __enter__(self) -> Self:
        self._reader = start_reader(self._worker_fds[0], self.inbox)
        self._thread.start()
        self.greet()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
        self.join()
        self._reader.join(LIMIT_S)
        os.close(self._worker_fds[0])

    def join(self) -> int | None:
        """Return the exit code once the worker has left."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.exit_code
