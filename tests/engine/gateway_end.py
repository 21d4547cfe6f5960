"""A gateway's end of the two pipes, for tests: sends messages, waits for answers, never hangs."""

from __future__ import annotations

import os
import select
import time
from typing import Any, TypeVar

from colibri_protocol.messages import (
    EngineMessage,
    GatewayMessage,
    RequestOptions,
    Segment,
    SegmentKind,
    SubmitExtended,
    TextDelta,
)
from colibri_protocol.session import GatewaySession

LIMIT_S = 20.0
_M = TypeVar("_M")


class GatewayEnd:
    """Talks to one engine.

    Args:
        from_engine: File descriptor to read; closed by `close_output` or `close`.
        to_engine: File descriptor to write; closed by `end_input` or `close`.
    """

    def __init__(self, from_engine: int, to_engine: int) -> None:
        self._from_engine: int | None = from_engine
        self._to_engine: int | None = to_engine
        self.session = GatewaySession()
        self.messages: list[EngineMessage] = []
        self.raw = b""

    def greet(self) -> None:
        """Wait for the handshake."""
        while not self.session.is_open:
            assert self.read(), "the engine left before it was ready"

    def send(self, message: GatewayMessage) -> None:
        self.send_raw(self.session.send(message))

    def send_raw(self, data: bytes) -> None:
        assert self._to_engine is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._to_engine, view) :]

    def submit(self, text: str, slot: int = -1, **options: Any) -> int:  # noqa: ANN401
        """Submit a prompt whose control words count; return its id."""
        request_id = self.session.next_id()
        segments = (Segment(SegmentKind.CONTROL, text),)
        self.send(SubmitExtended(request_id, slot, RequestOptions(**options), segments))
        return request_id

    def wait_for(self, kind: type[_M], request_id: int | None = None) -> _M:
        """Read until a message of this kind (and id) has come; return the first one."""
        seen = 0
        while True:
            for message in self.messages[seen:]:
                is_mine = request_id is None or getattr(message, "id", None) == request_id
                if isinstance(message, kind) and is_mine:
                    return message
            seen = len(self.messages)
            assert self.read(), f"the engine left after {self.messages[-3:]}"

    def wait_for_bytes(self, text: bytes) -> None:
        while text not in self.raw:
            assert self.read(), f"the engine left after {self.messages[-3:]}"

    def data(self, request_id: int) -> bytes:
        """Return the text of a reply so far."""
        mine = [m for m in self.messages if isinstance(m, TextDelta) and m.id == request_id]
        return b"".join(m.payload for m in mine)

    def read(self) -> bool:
        """Read once; return whether the engine is still there."""
        assert self._from_engine is not None
        ready, _, _ = select.select([self._from_engine], [], [], LIMIT_S)
        assert ready, f"nothing more came after {self.messages[-3:]}"
        data = os.read(self._from_engine, 1 << 16)
        self.raw += data
        self.messages += self.session.receive_data(data)
        return bool(data)

    def read_to_end(self) -> None:
        limit = time.monotonic() + LIMIT_S
        while self.read():
            assert time.monotonic() < limit

    def end_input(self) -> None:
        if self._to_engine is not None:
            os.close(self._to_engine)
            self._to_engine = None

    def close_output(self) -> None:
        if self._from_engine is not None:
            os.close(self._from_engine)
            self._from_engine = None

    def close(self) -> None:
        self.end_input()
        self.close_output()
