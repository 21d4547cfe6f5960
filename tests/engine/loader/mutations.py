"""Deterministic damage to files, of the kinds that disks, networks and enemies do."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

# Numbers that break arithmetic: counts, lengths and offsets are overwritten with them.
HOSTILE = (
    0, 1, 0x7F, 0xFF, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40,
    1 << 61, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip


def flip_bits(data: bytes, rng: random.Random, limit: int) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(limit)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random, limit: int) -> bytes:
    return data[: rng.choice((rng.randrange(limit), rng.randrange(len(data))))]


def overwrite_number(data: bytes, rng: random.Random, limit: int) -> bytes:
    size, code = rng.choice(((4, "<I"), (8, "<Q")))
    place = rng.randrange(limit)
    value = rng.choice(HOSTILE) & ((1 << 8 * size) - 1)
    return data[:place] + struct.pack(code, value) + data[place + size :]


def splice(data: bytes, rng: random.Random, limit: int) -> bytes:
    place, count = rng.randrange(limit), rng.randrange(1, 64)
    kind = rng.randrange(4)
    if kind == 0:  # insert
        return data[:place] + rng.randbytes(count) + data[place:]
    if kind == 1:  # delete
        return data[:place] + data[place + count :]
    if kind == 2:  # overwrite
        return data[:place] + rng.randbytes(count) + data[place + count :]
    source = rng.randrange(limit)  # copy from elsewhere
    return data[:place] + data[source : source + count] + data[place + count :]


def replace_text(data: bytes, rng: random.Random, limit: int) -> bytes:
    """Swap characters that mean something in JSON."""
    changed = bytearray(data)
    places = [place for place in range(limit) if data[place] in b'{}[]",:0123456789']
    if places:
        changed[rng.choice(places)] = rng.choice(b'{}[]",:-.e0123456789\\')
    return bytes(changed)


MUTATIONS = (flip_bits, truncate, overwrite_number, splice, replace_text)


def mutations(
    data: bytes, count: int, *, header: int, first: int = 0, start: int = 0
) -> Iterator[bytes]:
    """Yield damaged copies number `first` on; most damage is in `header` bytes from `start` on."""
    kept, data = data[:start], data[start:]
    for seed in range(first, first + count):
        rng = random.Random(seed)
        limit = len(data) if rng.random() < 0.1 else header
        yield kept + MUTATIONS[seed % len(MUTATIONS)](data, rng, limit)


# ---- JSON that stays JSON -----------------------------------------------------------------------

# What a parser lets pass and arithmetic, or a loop over it, may not.
HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 255, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 63, 10**400,
    0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), "", "x", "1", "\0", "é" * 300, [], [None],
    [0] * 300, [[]], {}, {"": None}, {"type": "x"},
)  # fmt: skip


def hostile_json(data: bytes, count: int, first: int = 0) -> Iterator[bytes]:
    """Yield copies number `first` on of a JSON file, each with a value or two that cannot be."""
    for seed in range(first, first + count):
        rng = random.Random(seed)
        body = json.loads(data)
        for _ in range(rng.choice((1, 1, 2))):
            _spoil(body, rng)
        yield json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()


def _spoil(body: Any, rng: random.Random) -> None:  # noqa: ANN401 - JSON
    """Change one place anywhere in a JSON object."""
    place = body
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = place[key]
        if not (isinstance(inner, (dict, list)) and inner and rng.random() < 0.8):
            break
        place = inner
    kind = rng.randrange(8)
    if kind == 0:
        del place[key]
    elif kind == 1:
        place[key] = place[rng.choice(keys)]
    elif kind == 2 and isinstance(inner, int):
        place[key] = inner + rng.choice((-1, 1))
    elif kind == 3 and isinstance(place, dict):
        place[str(rng.choice(keys)) + rng.choice(("", "_", "s"))] = place.pop(key)
    elif kind == 4 and isinstance(place, list):
        place.append(inner)
    else:
        place[key] = rng.choice(HOSTILE_VALUES)
