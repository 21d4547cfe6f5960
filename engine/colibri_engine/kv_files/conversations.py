"""What a slot table does with files: go on from them at the start, save to them at each turn's end.

A file that does not fit or is damaged is named in one warning and not used; the next turn of its
slot replaces it. Nothing that fails here harms a reply.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from colibri_engine import kernels, notices
from colibri_engine.errors import EngineError, reason_of
from colibri_engine.kv_files.conversation_file import ConversationFile
from colibri_engine.kv_files.disk import remove_partial
from colibri_engine.kv_files.layout import RowShape, Unusable
from colibri_engine.kv_files.original import is_original, num_original_rows, read_original
from colibri_engine.kv_files.places import Occupied, take_place
from colibri_engine.kv_files.writer import ConversationWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.kv_files.identity import Identity
    from colibri_engine.kv_files.original import OriginalShape
    from colibri_engine.kv_files.places import Place
    from colibri_engine.slots import Slot, SlotTable

    Ids = npt.NDArray[np.int32]

logger = logging.getLogger(__name__)

_FAULTS = (Unusable, OSError, MemoryError)


class Where(NamedTuple):
    """Which directories may hold the files.

    Args:
        model_path: The model's directory or file.
        kv_dir: The only directory to use, if the user names one.
        state_dir: The user's state directory of this program.
    """

    model_path: Path
    kv_dir: Path | None
    state_dir: Path


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of each slot, and what it must fit.

    Args:
        identity: What rows are computed with.
        shape: Sizes of rows and states.
        vocab_size: Token ids are below it.
        context_length: Positions of a slot.
        num_slots: Slots.
        original: The model's sizes for files of the original engine, or None.
    """

    identity: Identity
    shape: RowShape
    vocab_size: int
    context_length: int
    num_slots: int
    original: OriginalShape | None = None


class _Found(NamedTuple):
    """A conversation that can be gone on from."""

    slot: int
    length: int
    saved_at: int
    read_into: Callable[[kernels.KvCache], Ids]


class Conversations:
    """The saved conversations of one engine. Engine thread only.

    Args:
        place: Where they lie, locked; released by `close`.
        kept: What is kept.
    """

    def __init__(self, place: Place, kept: Kept) -> None:
        self._place = place
        self._kept = kept
        self._files = [
            ConversationFile(place.path(slot), kept.shape, kept.identity, kept)
            for slot in range(kept.num_slots)
        ]
        self._writer: ConversationWriter | None = None

    def resume(self, slots: SlotTable) -> None:
        """Fill the slots from their files, and begin to save."""
        found = [each for slot in range(self._kept.num_slots) if (each := self._find(slot))]
        for each in sorted(found, key=lambda each: each.saved_at):
            path = self._place.path(each.slot)
            try:
                slots.restore(each.slot, each.length, each.read_into)
            except _FAULTS as exc:
                _tell_dropped(path, exc)
        # Where memory is short the later ones took it from the earlier ones.
        now, saved_at = time.time_ns(), {each.slot: each.saved_at for each in found}
        resumed = [
            f"slot {slot.idx} with {len(slot.history)} tokens, {_age(now - saved_at[slot.idx])}"
            for slot in slots.slots
            if len(slot.history) > 0 and slot.idx in saved_at
        ]
        if resumed:
            files = f"{self._place.path(0)}*"
            notices.tell(
                "conversations go on: %s; answers stay the same, and come sooner where a prompt"
                " begins alike. COLI_KV_SAVE=0 starts without them; to forget them, end the engine"
                " and remove %s",
                "; ".join(resumed),
                files,
            )
        others = [n for n in self._place.slots_with_files() if n >= self._kept.num_slots]
        if others:
            notices.tell(
                "saved conversations of slots %s stay in %s: there are %d slots",
                ", ".join(map(str, others)),
                self._place.directory,
                self._kept.num_slots,
            )
        self._writer = ConversationWriter(self._files)

    def save(self, slot: Slot) -> None:
        """Let what a slot holds be saved."""
        assert isinstance(slot.cache, kernels.KvCache)
        if self._writer is not None:
            self._writer.save(slot.idx, slot.history.ids.copy(), kernels.KvReader(slot.cache))

    def cut(self, slot_idx: int, length: int) -> None:
        """Return when the rows of a slot from `length` on may be overwritten."""
        if self._writer is not None:
            self._writer.cut(slot_idx, length)

    def close(self) -> None:
        """Save what is left, and let another engine in."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._place.release()

    def _find(self, slot: int) -> _Found | None:
        path = self._place.path(slot)
        try:
            remove_partial(path)
            if is_original(path):
                return self._find_original(slot)
            file = self._files[slot]
            length = file.open()
        except FileNotFoundError:
            return None
        except _FAULTS as exc:
            _tell_dropped(path, exc)
            return None
        if length == 0:
            return None
        return _Found(slot, length, file.saved_at, file.read_into)

    def _find_original(self, slot: int) -> _Found | None:
        path, shape = self._place.path(slot), self._kept.original
        if shape is None:
            raise Unusable("it was saved by another engine, for another kind of model")
        length = num_original_rows(path, shape, self._kept)
        if length == 0:
            return None
        logger.warning(
            "%s was saved by another engine, which computes with other roundings: answers that go "
            "on from it may differ from those of a new conversation",
            path,
        )
        return _Found(
            slot,
            length,
            path.stat().st_mtime_ns,
            lambda cache: read_original(path, shape, self._kept, cache),
        )


def open_conversations(where: Where, kept: Kept) -> Conversations | None:
    """Return the saved conversations of a model; None, after saying why, if there can be none."""
    try:
        return Conversations(take_place(*where), kept)
    except Occupied as exc:
        logger.warning("%s: this one goes on from none and saves none", exc)
    except OSError as exc:
        logger.warning(
            "conversations are not saved: %s; set COLI_KV_DIR to a directory", reason_of(exc)
        )
    return None


def _age(elapsed_ns: int) -> str:
    """Return how long ago something was saved, in its largest unit."""
    elapsed_s = max(0, elapsed_ns) // 10**9  # the clock may have been put back
    for unit, length_s in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if number := elapsed_s // length_s:
            return f"saved {number} {unit}{'' if number == 1 else 's'} ago"
    return "saved just now"


def _tell_dropped(path: Path, exc: BaseException) -> None:
    reason = exc.message if isinstance(exc, EngineError) else str(exc)
    if isinstance(exc, OSError) and exc.strerror:
        reason = exc.strerror
    logger.warning("the saved conversation %s is not used: %s", path, reason)
