"""What the user chose for a conversion, checked as a whole: nothing is dropped silently."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from colibri_engine.conversion.quantize import MAX_BITS, MIN_BITS
from colibri_engine.errors import BadChoice

GROUP_SIZES: Final = (0, 16, 32, 48, 64, 96, 128, 192, 256)
DEFAULT_GROUP: Final = 64
FLOAT_BITS: Final = 16

_INT4: Final = 4
_KEEP: Final = "keep"
_FP8: Final = "fp8"
_E8: Final = "e8"
_OF_EXPERTS: Final = frozenset({"xbits", "gate-bits", "up-bits", "down-bits"})


class Layout(StrEnum):
    """How the result lies on disk."""

    STREAM = "stream"
    PAIRS = "pairs"


@dataclass(frozen=True, slots=True)
class Bits:
    """How one class of tensors is stored.

    Args:
        width: Bits of a code, 2 to 8; 16 for floats; 0 where one of the others is set.
        keep: The codes of the source are kept as they are.
        fp8: The bytes of an fp8 source are kept with their block scales.
        e8: Rounded to the lattice of 3 bits.
    """

    width: int
    keep: bool = False
    fp8: bool = False
    e8: bool = False

    @classmethod
    def parse(cls, option: str, text: str) -> Bits:
        """Read an option's value.

        Raises:
            BadChoice: it is neither a number of bits nor one of the words.
        """
        word = text.strip().lower()
        if word == _KEEP:
            return cls(0, keep=True)
        if word == _FP8:
            return cls(0, fp8=True)
        if word == _E8:
            return cls(0, e8=True)
        if word.isascii() and word.isdigit() and len(word) < 3:
            width = int(word)
            if MIN_BITS <= width <= MAX_BITS or width == FLOAT_BITS:
                return cls(width)
        raise BadChoice(
            f"--{option} {text!r} is no number of bits",
            hint=f"give {MIN_BITS} to {MAX_BITS}, {FLOAT_BITS} for floats, `{_KEEP}` to keep the "
            f"source's integers, `{_FP8}` to keep an fp8 source's bytes, or `{_E8}` for experts in "
            "3 bits",
        )

    @property
    def is_float(self) -> bool:
        """Whether the tensors stay floats."""
        return self.width == FLOAT_BITS

    def __str__(self) -> str:
        """Return the option's value."""
        words = {_KEEP: self.keep, _FP8: self.fp8, _E8: self.e8}
        return next((word for word, is_meant in words.items() if is_meant), str(self.width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bits by class of tensors; None where the user left it open.

    Args:
        ebits: Every matrix of the layers without an option of its own.
        io_bits: Embedding and head.
        xbits: Routed experts.
        gate_bits: Their gate projections.
        up_bits: Their up projections.
        down_bits: Their down projections.
        shared_bits: Shared experts.
        o_bits: Output projections of attention.
        kvb_bits: `kv_b_proj` of latent attention, or its halves.
        attn_bits: Other projections of attention.
        dmlp_bits: Dense feed-forward blocks.
        mtp_bits: Every matrix of the draft layers.
        group_size: Inputs per scale of 4-bit matrices; 0 for one scale per row.
    """

    ebits: Bits | None = None
    io_bits: Bits | None = None
    xbits: Bits | None = None
    gate_bits: Bits | None = None
    up_bits: Bits | None = None
    down_bits: Bits | None = None
    shared_bits: Bits | None = None
    o_bits: Bits | None = None
    kvb_bits: Bits | None = None
    attn_bits: Bits | None = None
    dmlp_bits: Bits | None = None
    mtp_bits: Bits | None = None
    group_size: int | None = None

    def chosen(self) -> dict[str, Bits]:
        """Return the options that were given, by name."""
        names = [field.name for field in fields(self) if field.name != "group_size"]
        given = {name: getattr(self, name) for name in names}
        return {name: bits for name, bits in given.items() if bits is not None}

    def check(self, layout: Layout) -> None:
        """Refuse what cannot be, or cannot be together.

        Raises:
            BadChoice: naming the options.
        """
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise BadChoice(
                f"--group-size {self.group_size} is not possible",
                hint=f"give one of {', '.join(map(str, GROUP_SIZES))}; 0 is one scale per row",
            )
        for name, bits in self.chosen().items():
            self._check_one(name.replace("_", "-"), bits, layout)
        if self.group_size and not self._has_four_bits():
            raise BadChoice(
                f"--group-size {self.group_size} has no effect: no class of tensors has 4 bits",
                hint="leave it out: 3 bits have groups of 64, 2 and 5 to 8 bits a scale per row",
            )

    def _check_one(self, option: str, bits: Bits, layout: Layout) -> None:
        if bits.e8 and layout is Layout.STREAM:
            raise BadChoice(
                f"--{option} {bits} cannot be combined with --layout stream, where it would take "
                "more than 8 bits",
                hint="use --layout pairs, or give a number of bits",
            )
        if bits.e8 and option not in _OF_EXPERTS:
            raise BadChoice(
                f"--{option} {_E8} is not possible: only routed experts are stored so",
                hint=f"use --xbits {_E8}, and a number of bits here",
            )
        if bits.is_float and option in {"ebits", *_OF_EXPERTS}:
            raise BadChoice(
                f"--{option} 16 is not possible: routed experts are stored as integers or fp8",
                hint=f"give {MIN_BITS} to {MAX_BITS}",
            )

    def _has_four_bits(self) -> bool:
        """Tell whether some class can come out at 4 bits, given what was chosen."""
        chosen = self.chosen()
        base = self.ebits.width if self.ebits is not None else _INT4
        layers = ("xbits", "shared_bits", "o_bits", "kvb_bits", "attn_bits", "dmlp_bits")
        widths = {chosen[name].width if name in chosen else base for name in layers}
        return _INT4 in widths | {bits.width for bits in chosen.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """Everything about one conversion but its source and place.

    Args:
        layout: How the result lies on disk.
        precision: Bits by class.
        with_mtp: Whether draft layers are converted.
        shard_bytes: About how large a file becomes.
        min_free_bytes: What must stay free on the disk.
        num_threads: Threads that compute.
        commit: What names the values of a source whose files are brought while it runs.
    """

    layout: Layout = Layout.STREAM
    precision: Precision = Precision()
    with_mtp: bool = True
    shard_bytes: int = 5_000_000_000
    min_free_bytes: int = 1_000_000_000
    num_threads: int = 1
    commit: str | None = None

    def parameters(self) -> dict[str, object]:
        """Return what decides about the bytes of the result, for the manifest."""
        chosen = {name: str(bits) for name, bits in self.precision.chosen().items()}
        return {
            "layout": str(self.layout),
            "group_size": self.precision.group_size,
            "mtp": self.with_mtp,
            "shard_bytes": self.shard_bytes,
            **chosen,
        }
