"""Reading a finished container back: every byte of every file against the digests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.safetensors import SafetensorsFile
from colibri_engine.loader.stream_layout import DIGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_engine.loader.shard_writer import WrittenShard

_PIECE: Final = 4 << 20
_HOLE: Final = b"0" * 64


def verify_file(path: Path, wanted: WrittenShard, report: Callable[[int], None]) -> None:
    """Compare a file with its size and digest.

    Args:
        path: The file.
        wanted: What it must be.
        report: Called with the bytes of each piece read.

    Raises:
        CheckpointError: it differs.
    """
    file = SafetensorsFile(path)
    file.close()
    own = file.metadata.get(DIGEST_KEY)
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        head = stream.read(8)
        head += stream.read(int.from_bytes(head, "little"))
        if own is not None:
            lead = f'"{DIGEST_KEY}":"'.encode()
            head = head.replace(lead + own.encode(), lead + _HOLE, 1)
        piece = head
        while piece:
            digest.update(piece)
            size += len(piece)
            report(len(piece))
            piece = stream.read(_PIECE)
    if (
        size != wanted.nbytes
        or digest.hexdigest() != wanted.sha256
        or own not in {None, wanted.sha256}
    ):
        raise CheckpointError(
            f"{path} is damaged: its digest is not the one it was written with",
            path=path,
            hint="remove it and run the conversion again: only this file is written anew",
        )
