"""An engine around the fake model, and short ways to talk to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from colibri_engine.admission import Admission, GenerationDefaults
from colibri_engine.engine import Engine, Layout
from colibri_protocol.messages import (
    EngineMessage,
    Finished,
    RequestFailed,
    RequestOptions,
    SubmitExtended,
    TextDelta,
)
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_model import FakeBatch, FakeModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_engine.speculation.drafting import Drafting

DEFAULTS = GenerationDefaults(max_tokens=8, temperature=0.0, top_p=1.0, seed=1)


class Rig:
    """One engine with its fakes; `run` steps it until a request ends."""

    def __init__(
        self,
        *,
        num_slots: int = 4,
        chunk_tokens: int = 16,
        context_length: int = 512,
        model: FakeModel | None = None,
        drafting: Drafting | None = None,
        **defaults: Any,  # noqa: ANN401 - any field of GenerationDefaults
    ) -> None:
        self.model = model or FakeModel()
        self.clock = FakeClock()
        admission = Admission(
            VOCAB_SIZE, context_length, frozenset({EOS}), replace(DEFAULTS, **defaults)
        )
        self.engine = Engine(
            self.model,  # type: ignore[arg-type]  # as much of a model as the engine needs
            FakeBatch(),  # type: ignore[arg-type]
            ByteTokenizer(),
            admission,
            Layout(num_slots, chunk_tokens, num_cores=2, drafting=drafting),
            clock=self.clock,
        )
        self.messages: list[EngineMessage] = []
        self._last_id = 0

    def submit(
        self,
        prompt: str | bytes | Iterable[int],
        slot: int = -1,
        **options: Any,  # noqa: ANN401 - any field of RequestOptions
    ) -> int:
        """Submit a prompt; return its id."""
        self._last_id += 1
        if isinstance(prompt, str):
            prompt = prompt.encode()
        request = SubmitExtended(self._last_id, slot, RequestOptions(**options), ())
        self.keep(self.engine.submit(request, np.array(list(prompt), np.int32)))
        return self._last_id

    def keep(self, messages: list[EngineMessage]) -> list[EngineMessage]:
        self.messages += messages
        return messages

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(0.5)
            self.keep(self.engine.step())

    def run(self, *request_ids: int) -> None:
        """Step until these requests (default: all) have ended."""
        for _ in range(10_000):
            if self.engine.is_idle or (request_ids and all(map(self.has_ended, request_ids))):
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def has_ended(self, request_id: int) -> bool:
        return any(isinstance(m, Finished | RequestFailed) for m in self.of(request_id))

    def of(self, request_id: int) -> list[EngineMessage]:
        return [m for m in self.messages if getattr(m, "id", None) == request_id]

    def data(self, request_id: int) -> bytes:
        return b"".join(m.payload for m in self.of(request_id) if isinstance(m, TextDelta))

    def finished(self, request_id: int) -> Finished:
        (found,) = [m for m in self.of(request_id) if isinstance(m, Finished)]
        return found

    def failed(self, request_id: int) -> RequestFailed:
        (found,) = [m for m in self.of(request_id) if isinstance(m, RequestFailed)]
        return found

    def answer(self, prompt: str | bytes | Iterable[int], **options: Any) -> bytes:  # noqa: ANN401
        """Run one request to its end; return its bytes."""
        request_id = self.submit(prompt, **options)
        self.run(request_id)
        self.finished(request_id)
        return self.data(request_id)


def scripted(reply: bytes | list[int], num_prompt: int) -> FakeModel:
    """Return a model that answers a prompt of this length with these tokens, then the end."""
    tokens: list[int] = [*reply, EOS]

    def next_token(history: list[int]) -> int:
        return tokens[min(len(history) - num_prompt, len(tokens) - 1)]

    return FakeModel(next_token=next_token)
