"""A disk that forgets: what may be left of a file when the power fails at any moment.

Everything before the last wait for the disk is there. Of what came after it, every sector written
and every change of size may be there or not, in any combination.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

SECTOR = 512


@dataclass
class Log:
    """What was done to one file, in order; each entry is a moment at which all may end."""

    entries: list[tuple[str, int, bytes]] = field(default_factory=list)

    def add(self, kind: str, place: int = 0, data: bytes = b"") -> None:
        self.entries.append((kind, place, data))

    def remains(self, moment: int, draw: np.random.Generator) -> bytes | None:
        """Return a file that may be left after `moment` entries; None: there is none."""
        done = self.entries[:moment]
        if not any(kind == "publish" for kind, _, _ in done):
            return None
        synced = max((i for i, (kind, _, _) in enumerate(done) if kind == "sync"), default=0)
        image = bytearray()
        for index, (kind, place, data) in enumerate(done):
            is_sure = index < synced
            if kind == "cut" and (is_sure or draw.random() < 0.5):
                del image[place:]
                image.extend(bytes(place - len(image)))
            if kind == "write":
                for begin in range(0, len(data), SECTOR):
                    if is_sure or draw.random() < 0.5:
                        _put(image, place + begin, data[begin : begin + SECTOR])
        return bytes(image)


def _put(image: bytearray, place: int, data: bytes) -> None:
    if len(image) < place + len(data):
        image.extend(bytes(place + len(data) - len(image)))
    image[place : place + len(data)] = data


def recording_disk(log: Log) -> Any:  # noqa: ANN401 - stands for the class DiskFile
    """Return a class that is used as `DiskFile` is, and writes down what it is asked to do."""

    class RecordingDisk:
        def __init__(self, path: Path) -> None:
            self.path = path

        @classmethod
        def create(cls, path: Path) -> RecordingDisk:
            return cls(path)

        def publish(self) -> None:
            log.add("sync")
            log.add("publish")

        def write(self, offset: int, data: Any) -> None:  # noqa: ANN401 - any buffer
            raw = data if isinstance(data, bytes | bytearray) else data.tobytes()
            log.add("write", offset, bytes(raw))

        def sync(self) -> None:
            log.add("sync")

        def cut(self, size: int) -> None:
            log.add("cut", size)

        def close(self) -> None:
            pass

    return RecordingDisk
