"""The streaming layout "stream-1": what the metadata of its safetensors files says.

A routed expert is one tensor, its record: gate, up and down as packed matrices one after the
other, so that one read brings everything and nothing is rearranged. Other matrices are packed the
same way, one per tensor; what is not a matrix of grouped integers is stored as plain floats.
Knows names, numbers and JSON; opens no file.
Source: docs/formats.md, "The streaming layout".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.json_file import parse_json
from colibri_engine.quant.tiles import TileLayout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LAYOUT_KEY: Final = "colibri.layout"
EXPERTS_KEY: Final = "colibri.experts"
MATRICES_KEY: Final = "colibri.matrices"
DIGEST_KEY: Final = "colibri.sha256"
LAYOUT_NAME: Final = "stream-1"

RECORD_ALIGNMENT: Final = 4096  # what unbuffered reads want, of offsets and of lengths
PARTS: Final = ("gate_proj", "up_proj", "down_proj")  # in the order of a record

_MAX_SIZE: Final = 1 << 31
_SCALE_BYTES: Final = {"F8_E8M0": 1, "F16": 2, "F32": 4}
_SCALE_NAMES: Final = {size: name for name, size in _SCALE_BYTES.items()}
_MATRIX_KEYS: Final = {"format", "shape", "bits", "group", "zero", "scales", "rotated", "offset"}
_LEVELS_KEY: Final = "levels"  # only where codes number them
_CODES_KEY: Final = "codes"  # only where they are floats
_REST_KEY: Final = "rest"  # only where something is kept for the way back
_OPTIONAL_KEYS: Final = {_LEVELS_KEY, _CODES_KEY, _REST_KEY}
_FP8_CODES: Final = "F8_E4M3"
_STREAM_PAD: Final = 64
_NUM_LEVELS: Final = 16


@dataclass(frozen=True, slots=True)
class PackedPlace:
    """One packed matrix inside a tensor.

    Args:
        layout: Its sizes.
        offset: Where its bytes begin in the tensor; a multiple of 64.
        format: Name of the number format the values came from ("int4-grouped", "q4_k").
        rest: Bytes behind the packed matrix that no kernel reads: what its former format knew
            besides, for the way back.
    """

    layout: TileLayout
    offset: int
    format: str
    rest: int = 0

    @property
    def rest_offset(self) -> int:
        """Where the rest begins in the tensor."""
        return self.offset + self.layout.nbytes

    @property
    def end(self) -> int:
        """Where its bytes end in the tensor; a multiple of 64."""
        return self.rest_offset + -(-self.rest // _STREAM_PAD) * _STREAM_PAD


@dataclass(frozen=True, slots=True)
class ExpertRecord:
    """How every expert of one layer lies in its tensor.

    Args:
        parts: The matrices by name (`PARTS`).
        nbytes: Bytes of the tensor, padding included; a multiple of 4096.
    """

    parts: Mapping[str, PackedPlace]
    nbytes: int

    @classmethod
    def of(
        cls, parts: Mapping[str, tuple[TileLayout, str]], rests: Mapping[str, int] | None = None
    ) -> ExpertRecord:
        """Return the record of matrices.

        Args:
            parts: Their (layout, format name) by name.
            rests: Bytes of their rests by name; none by default.
        """
        places: dict[str, PackedPlace] = {}
        end = 0
        for part in PARTS:
            layout, name = parts[part]
            places[part] = PackedPlace(layout, end, name, 0 if rests is None else rests[part])
            end = places[part].end
        return cls(places, -(-end // RECORD_ALIGNMENT) * RECORD_ALIGNMENT)


def encode_experts(records: Mapping[str, ExpertRecord]) -> str:
    """Return the value of `colibri.experts`: records by what precedes an expert's number."""
    return _dump(
        {
            prefix: {
                "bytes": record.nbytes,
                "parts": {part: _encode(place) for part, place in record.parts.items()},
            }
            for prefix, record in records.items()
        }
    )


def encode_matrices(matrices: Mapping[str, PackedPlace]) -> str:
    """Return the value of `colibri.matrices`: places by tensor name."""
    return _dump({name: _encode(place) for name, place in matrices.items()})


def decode_experts(text: str, path: Path) -> dict[str, ExpertRecord]:
    """Return the records a file declares, checked.

    Raises:
        CheckpointError: the text is damaged; names the file and the layer.
    """
    records: dict[str, ExpertRecord] = {}
    for prefix, body in parse_json(text.encode(), path, EXPERTS_KEY).items():
        if not isinstance(body, dict) or body.keys() != {"bytes", "parts"}:
            raise _damaged(path, EXPERTS_KEY, prefix, "does not hold bytes and parts")
        parts, nbytes = body["parts"], body["bytes"]
        if not isinstance(parts, dict) or tuple(parts) != PARTS:
            raise _damaged(path, EXPERTS_KEY, prefix, f"does not hold {', '.join(PARTS)}")
        places = {part: _decode(parts[part], path, EXPERTS_KEY, prefix) for part in PARTS}
        end = 0
        for place in places.values():
            if place.offset < end:
                raise _damaged(path, EXPERTS_KEY, prefix, "has matrices that overlap")
            if place.offset > end:  # as if groups or rests were not the ones they were written with
                raise _damaged(path, EXPERTS_KEY, prefix, "has bytes between its matrices")
            end = place.end
        if type(nbytes) is not int or nbytes != -(-end // RECORD_ALIGNMENT) * RECORD_ALIGNMENT:
            raise _damaged(path, EXPERTS_KEY, prefix, "has a record of an impossible size")
        records[prefix] = ExpertRecord(places, nbytes)
    return records


def decode_matrices(text: str, path: Path) -> dict[str, PackedPlace]:
    """Return the packed matrices a file declares, checked.

    Raises:
        CheckpointError: the text is damaged; names the file and the tensor.
    """
    places = {
        name: _decode(body, path, MATRICES_KEY, name)
        for name, body in parse_json(text.encode(), path, MATRICES_KEY).items()
    }
    for name, place in places.items():
        if place.offset:
            raise _damaged(path, MATRICES_KEY, name, "does not begin with its tensor")
    return places


def _dump(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))


def _encode(place: PackedPlace) -> dict[str, Any]:
    layout = place.layout
    further: dict[str, Any] = {}
    if layout.levels is not None:
        further[_LEVELS_KEY] = list(layout.levels)
    if layout.fp8:
        further[_CODES_KEY] = _FP8_CODES
    if place.rest:
        further[_REST_KEY] = place.rest
    return {
        "format": place.format,
        "shape": [layout.num_outputs, layout.num_inputs],
        "bits": layout.bits,
        "group": layout.group,
        "zero": layout.zero,
        "scales": _SCALE_NAMES[layout.scale_bytes],
        "rotated": layout.rotated,
        "offset": place.offset,
        **further,
    }


def _decode(body: object, path: Path, key: str, name: str) -> PackedPlace:
    if not isinstance(body, dict) or body.keys() - _OPTIONAL_KEYS != _MATRIX_KEYS:
        raise _damaged(path, key, name, f"does not hold {', '.join(sorted(_MATRIX_KEYS))}")
    shape, group, zero, offset = (body[field] for field in ("shape", "group", "zero", "offset"))
    bits, scales, format_name = body["bits"], body["scales"], body["format"]
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(_is_within(size, 1, _MAX_SIZE) for size in shape)
    ):
        raise _damaged(path, key, name, f"has the shape {str(shape)[:40]}")
    if type(bits) is not int or bits not in {4, 8}:
        raise _damaged(path, key, name, f"has {str(bits)[:40]} bits, not 4 or 8")
    if not _is_within(group, 16, _MAX_SIZE) or group % 16:
        raise _damaged(path, key, name, f"has groups of {str(group)[:40]}, no multiple of 16")
    levels = _decode_levels(body, path, key, name)
    if zero is not None and not _is_within(zero, 0, 1 << bits if levels is None else 256):
        raise _damaged(path, key, name, f"has the zero point {str(zero)[:40]}")
    if not isinstance(scales, str) or scales not in _SCALE_BYTES:
        raise _damaged(path, key, name, f"has scales of type {str(scales)[:40]}")
    if _SCALE_BYTES[scales] == 1 and (levels is None or zero is None):
        raise _damaged(path, key, name, f"has scales of type {scales} without levels and a zero")
    if type(body["rotated"]) is not bool:
        raise _damaged(path, key, name, "does not say whether it is rotated")
    if not isinstance(format_name, str) or not 0 < len(format_name) <= 64:
        raise _damaged(path, key, name, "does not name its format")
    if not _is_within(offset, 0, 1 << 62) or offset % 64:
        raise _damaged(path, key, name, f"has the offset {str(offset)[:40]}")
    scale_bytes, rotated = _SCALE_BYTES[scales], body["rotated"]
    layout = TileLayout(shape[0], shape[1], bits, group, zero, scale_bytes, rotated, levels)
    if _CODES_KEY in body:
        layout = _decode_codes(body[_CODES_KEY], layout, path, key, name)
    return PackedPlace(layout, offset, format_name, _decode_rest(body, path, key, name))


def _decode_rest(body: Mapping[str, Any], path: Path, key: str, name: str) -> int:
    rest = body.get(_REST_KEY, 0)
    if not _is_within(rest, 0, 1 << 62):
        raise _damaged(path, key, name, f"has a rest of {str(rest)[:40]} bytes")
    return int(rest)


def _decode_codes(codes: object, layout: TileLayout, path: Path, key: str, name: str) -> TileLayout:
    fp8 = TileLayout.of_fp8(layout.num_outputs, layout.num_inputs, layout.group)
    if codes != _FP8_CODES or layout != replace(fp8, fp8=False):
        raise _damaged(path, key, name, f"has codes other than {_FP8_CODES} with scales of F32")
    return fp8


def _decode_levels(body: Mapping[str, Any], path: Path, key: str, name: str) -> bytes | None:
    if _LEVELS_KEY not in body:
        return None
    levels = body[_LEVELS_KEY]
    if (
        body["bits"] != 4
        or not isinstance(levels, list)
        or len(levels) != _NUM_LEVELS
        or not all(_is_within(level, 0, 256) for level in levels)
    ):
        raise _damaged(path, key, name, f"has levels other than 16 bytes for {_NUM_LEVELS} codes")
    return bytes(levels)


def _is_within(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value < high


def _damaged(path: Path, key: str, name: str, problem: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: in its metadata, {key} of {name[:120]!r} {problem}",
        path=path,
        tensor=name,
        hint="convert or copy the model again",
    )
