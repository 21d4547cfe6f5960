"""A checkpoint that is read wrongly on purpose, to see whether a test notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from colibri_engine.quant.base import FloatTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.quant.base import StoredTensor

    Floats = npt.NDArray[np.float32]
    Alter = Callable[[Checkpoint, str], Floats | None]


class AlteredCheckpoint:
    """Another checkpoint with changed values, configuration or both.

    Args:
        checkpoint: The one that is right.
        alter: Given it and a tensor's name, returns other values, or None for its own.
        config: Keys of the configuration that differ.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        alter: Alter | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._alter = alter
        self.config = {**checkpoint.config, **(config or {})}
        self.num_altered = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._checkpoint, name)

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor, or what stands in its place."""
        values = self._alter(self._checkpoint, name) if self._alter is not None else None
        if values is None:
            return self._checkpoint.tensor(name)
        self.num_altered += 1
        assert values.shape == self._checkpoint.shape(name)
        return FloatTensor(np.ascontiguousarray(values))


def in_halves(checkpoint: Checkpoint, name: str) -> Floats | None:
    """Return gate and up as if their rows followed each other where they take turns."""
    if "gate_proj" not in name and "up_proj" not in name:
        return None
    both = [
        checkpoint.array(name.replace("up_proj", "gate_proj")),
        checkpoint.array(name.replace("gate_proj", "up_proj")),
    ]
    stack = np.stack(both, axis=1).reshape(-1, *both[0].shape[1:])  # g0, u0, g1, u1 …
    half = len(stack) // 2
    return stack[:half] if "gate_proj" in name else stack[half:]
