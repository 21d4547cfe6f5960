"""Turns of a conversation, and saving them as an engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from colibri_engine.kernels import KvReader
from colibri_engine.kv_files.writer import ConversationWriter
from tests.engine.kv_files.file_rig import cache_of, ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.kv_files.conversation_file import ConversationFile
    from tests.engine.kv_files.file_rig import Ids, Layouts


class Turn(NamedTuple):
    """What a slot holds when a turn ends, and at which lengths before its state is known."""

    ids: Ids
    states: tuple[int, ...]


def turns_of(seed: int, count: int, longest: int = 40) -> list[Turn]:
    """Return turns that go on, turn back or begin anew."""
    draw = np.random.default_rng(seed)
    turns: list[Turn] = []
    ids = np.empty(0, np.int32)
    states: list[int] = []
    for number in range(count):
        kind = draw.integers(0, 4) if ids.size else 3
        kept = 0 if kind == 3 else ids.size if kind else int(draw.integers(1, ids.size + 1))
        added = ids_of(int(draw.integers(1, longest)), seed * 1000 + number)
        ids = np.concatenate([ids[:kept], added])
        states = [length for length in states if length <= kept][-2:]
        turns.append(Turn(ids, tuple(states)))
        states.append(ids.size)
    return turns


def save(writer: ConversationWriter, turn: Turn, layouts: Layouts, slot: int = 0) -> None:
    """Hand a turn to the writer."""
    writer.save(slot, turn.ids, KvReader(cache_of(turn.ids, layouts, turn.states)))


def save_all(file: ConversationFile, turns: Sequence[Turn], layouts: Layouts) -> None:
    """Save turns one after the other; none replaces one that still waits."""
    writer = ConversationWriter([file])
    for turn in turns:
        save(writer, turn, layouts)
        writer.flush()
    writer.close()
