"""Tiny random models that no file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colibri_engine.quant.base import FloatTensor, StoredTensor
from colibri_engine.quant.registry import FORMATS
from tests.fakes.tiny_checkpoint import Floats, Weights, tiny_config, tiny_weights


class MemoryCheckpoint:
    """A model that no file holds; what `WeightReader` and `load_model` ask for.

    Args:
        config: As in `config.json`.
        tensors: By published name.
    """

    path = Path("in memory")

    def __init__(self, config: dict[str, Any], tensors: dict[str, StoredTensor]) -> None:
        self.config = config
        self.tensors = tensors

    def names(self) -> list[str]:
        return list(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def tensor(self, name: str) -> StoredTensor:
        return self.tensors[name]

    def weights(self) -> Weights:
        """Return the values, as float32."""
        return {name: stored.unpack() for name, stored in self.tensors.items()}


def stored_as(values: Floats, type_name: str) -> StoredTensor:
    """Return values in one GGUF type where they are whole blocks wide, else as float32."""
    number_format = FORMATS[type_name.lower()]
    if values.ndim == 1 or values.shape[1] % number_format.block_size:
        return FloatTensor(values)
    assert number_format.pack is not None
    return number_format.to_stored(number_format.pack(values))


def memory_model(
    family: str, *, type_name: str = "F32", seed: int = 0, **changes: object
) -> MemoryCheckpoint:
    """Return a tiny model, its matrices but the router's in one number format.

    Args:
        family: Its `model_type`.
        type_name: A GGUF type.
        seed: Of the weights.
        changes: Configuration keys that differ from `tiny_config`.
    """
    config = tiny_config(family, **changes)
    weights = tiny_weights(config, seed)
    return MemoryCheckpoint(
        config,
        {
            name: stored_as(values, "F32" if ".mlp.gate." in name else type_name)
            for name, values in weights.items()
        },
    )
