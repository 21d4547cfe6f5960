"""Experts as the kernels see them where their records lie: in slots, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_engine.kernels import Expert, Linear, Matrix, SlotArena
from colibri_engine.loader.stream_layout import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from colibri_engine.loader.stream_layout import ExpertRecord, PackedPlace

    Bias = np.ndarray[tuple[int], np.dtype[np.float32]]

_GATE, _UP, _DOWN = PARTS


@dataclass(frozen=True, slots=True)
class ExpertForm:
    """What the experts of a layer are besides their record.

    Args:
        record: How each record is built.
        numerics: How activations meet the weights.
        clamp: (limit, alpha) of a clamped gated unit; None for the plain one.
        biases: Of gate and up together, and of down, by expert; None where there are none.
    """

    record: ExpertRecord
    numerics: str
    clamp: tuple[float, float] | None = None
    biases: Sequence[tuple[Bias, Bias]] | None = None

    @property
    def is_viewable(self) -> bool:
        """Whether gate and up take their input in one form, so that nothing must be rearranged."""
        parts = self.record.parts
        return parts[_GATE].layout.rotated == parts[_UP].layout.rotated

    def is_like(self, other: ExpertForm) -> bool:
        """Whether what stands in a slot can be taken for an expert of either."""
        return (
            self.biases is None
            and other.biases is None
            and (self.record, self.numerics, self.clamp)
            == (other.record, other.numerics, other.clamp)
        )

    def expert(self, arena: SlotArena, slot: int, number: int) -> Expert:
        """Return the expert `number` that stands, or will stand, in a slot."""
        parts = self.record.parts
        gate, up, down = (_view(arena, slot, parts[name]) for name in PARTS)
        first, last = (None, None) if self.biases is None else self.biases[number]
        return Expert(
            Linear([gate, up], first, self.numerics),
            Linear([down], last, self.numerics),
            self.clamp,
        )


class SlotExperts:
    """The experts of all layers of one form, made once for each slot.

    Args:
        form: What they are.
    """

    def __init__(self, form: ExpertForm) -> None:
        self.form = form
        self._made: dict[int, Expert] = {}

    def at(self, arena: SlotArena, slot: int, number: int) -> Expert:
        """Return the expert `number`, whose record stands in a slot."""
        if self.form.biases is not None:  # they belong to the expert, not to the slot
            return self.form.expert(arena, slot, number)
        expert = self._made.get(slot)
        if expert is None:
            expert = self._made[slot] = self.form.expert(arena, slot, number)
        return expert

    def forget(self) -> None:
        """Forget all slots: they are about to go."""
        self._made.clear()

    def has_finite_scales(self, arena: SlotArena, slot: int) -> bool:
        """Return whether a record that has arrived can give finite answers."""
        return all(
            _view(arena, slot, place).has_finite_scales()
            for place in self.form.record.parts.values()
        )


def _view(arena: SlotArena, slot: int, place: PackedPlace) -> Matrix:
    layout = place.layout
    return Matrix.view_packed(
        arena,
        slot,
        place.offset,
        (layout.num_outputs, layout.num_inputs),
        layout.zero,
        bits=layout.bits,
        group=layout.group,
        scale_bytes=layout.scale_bytes,
        rotated=layout.rotated,
        levels=layout.levels,
        fp8=layout.fp8,
    )
