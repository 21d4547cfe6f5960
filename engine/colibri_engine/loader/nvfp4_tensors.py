"""NVFP4 matrices of published checkpoints: nibbles, a scale per 16 inputs, one for the matrix.

`X.weight` U8, `X.weight_scale` E4M3, `X.weight_scale_2` one float32. `X.input_scale` is for
quantized activations and not needed: activations keep their precision here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.quant import nvfp4
from colibri_engine.quant.base import IntTensor, MatrixShape, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from colibri_engine.loader.shards import ShardSet

_ALGORITHM: Final = "NVFP4"
_SCALE: Final = "_scale"
_FACTOR: Final = "_scale_2"


class Nvfp4Tensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.
        quantization: `quantization_config` of the model.

    Raises:
        UnsupportedQuantFormat: an algorithm other than NVFP4.
        CheckpointError: a matrix has no scales.
    """

    def __init__(self, shards: ShardSet, quantization: Mapping[str, Any]) -> None:
        algorithm = quantization.get("quant_algo")
        if algorithm != _ALGORITHM:
            raise UnsupportedQuantFormat(
                f"{shards.directory} is quantised by modelopt as {str(algorithm)[:60]!r}, which is "
                "not supported",
                hint=f"supported: {_ALGORITHM}; or use a bf16 or GGUF form of the model",
            )
        self._shards = shards
        names = [name for name in shards.names() if name.endswith(_FACTOR)]
        self._names = [name.removesuffix(_FACTOR) for name in names]
        self.claimed = set(names)
        for name in self._names:
            for part in (name, name + _SCALE):
                if part not in shards:
                    raise self._bad(name, f"has no {part}")
                self.claimed.add(part)
            input_scale = name.removesuffix("weight") + "input_scale"
            if input_scale in shards:
                self.claimed.add(input_scale)

    def names(self) -> Collection[str]:
        """Return the names of the matrices."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return (O, I)."""
        entry = self._shards.entry(name)
        if entry.dtype != "U8" or len(entry.shape) != 2:
            raise self._bad(name, f"is stored as {entry.dtype} in shape {list(entry.shape)}")
        return entry.shape[0], 2 * entry.shape[1]

    def format_name(self, name: str) -> str:
        """Return "nvfp4"."""
        return nvfp4.FORMAT.name

    def read(self, name: str) -> StoredTensor:
        """Read a matrix as it is stored."""
        num_outputs, num_inputs = self.shape(name)
        entry = self._shards.entry(name + _SCALE)
        wanted = (num_outputs, -(-num_inputs // nvfp4.GROUP))
        if entry.dtype != "F8_E4M3" or entry.shape != wanted:
            raise self._bad(
                name,
                f"has scales of {entry.dtype} in shape {list(entry.shape)}, not F8_E4M3 in "
                f"{list(wanted)}",
            )
        weights = self._shards.read(name).reshape(num_outputs, -1)
        scales = self._shards.read(name + _SCALE)
        shape = MatrixShape(num_outputs, num_inputs)
        stored = nvfp4.FORMAT.to_stored(weights, scales, shape)
        assert isinstance(stored, IntTensor)
        found = nvfp4.with_factor(stored, self._factor(name))
        if not np.isfinite(found.scales).all() or (found.scales < 0).any():
            raise self._bad(name, "has a scale that is negative or not finite")
        return found

    def _factor(self, name: str) -> np.float32:
        entry = self._shards.entry(name + _FACTOR)
        if entry.dtype != "F32" or entry.nbytes != 4:
            raise self._bad(name, f"has a {name}{_FACTOR} that is not one float32")
        factor = self._shards.read(name + _FACTOR).view("<f4")[0]
        if not np.isfinite(factor) or factor < 0:
            raise self._bad(name, "has a scale that is negative or not finite")
        if factor >= 1:  # such files mean its reciprocal
            raise UnsupportedQuantFormat(
                f"{name}{_FACTOR} of {self._shards.directory} is {factor}, which is no factor "
                "below 1",
                hint="it seems to be meant as a divisor; use another form of the model",
            )
        return np.float32(factor)

    def _bad(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"the NVFP4 tensor {name} of {self._shards.directory} {problem}",
            path=self._shards.path(name + _FACTOR),
            tensor=name,
            hint="pull the model again, or use a bf16 or GGUF form of it",
        )
