"""From checkpoint tensors to packed layers, with every name and shape accounted for.

Shapes come from the architecture and are checked against the file, never the other way round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from colibri_engine.errors import CheckpointError
from colibri_engine.experts.counters import ExpertCounters
from colibri_engine.experts.slot_experts import ExpertForm
from colibri_engine.kernels import Expert, HeadLinear, Linear, Matrix, Vector
from colibri_engine.layers.expert_sets import ResidentExperts, StreamedExperts
from colibri_engine.loader.stream_layout import PARTS
from colibri_engine.quant.base import Fp8Tensor, IntTensor, StoredTensor
from colibri_engine.quant.tiles import PackedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.experts.store import ExpertStore
    from colibri_engine.layers.expert_sets import ExpertSet
    from colibri_engine.loader.base import Checkpoint

    Values = np.ndarray[tuple[int], np.dtype[np.float32]]


class WeightReader:
    """Reads the tensors of one model, each exactly once.

    Args:
        checkpoint: Where they are.
        numerics: How activations meet integer weights: "default", "fast" or "float".
        store: What streams routed experts; None: all are read.
    """

    def __init__(
        self, checkpoint: Checkpoint, numerics: str, store: ExpertStore | None = None
    ) -> None:
        self._checkpoint = checkpoint
        self._numerics = numerics
        self._delicate = "default" if numerics == "fast" else numerics
        self._store = store
        self.counters = ExpertCounters() if store is None else store.counters
        self._names = frozenset(checkpoint.names())
        self._consumed: set[str] = set()
        self.nbytes = 0
        self.expert_nbytes = 0

    def has(self, name: str) -> bool:
        """Tell whether the checkpoint has this tensor."""
        return name in self._names

    def matrix(
        self, name: str, num_outputs: int, num_inputs: int, *, padded_outputs: int = 0
    ) -> Matrix:
        """Return a packed [num_outputs, num_inputs] matrix.

        Args:
            name: The tensor.
            num_outputs: Rows wanted.
            num_inputs: Columns.
            padded_outputs: Rows the file may have instead, those behind being padding.

        Raises:
            CheckpointError: it is missing, of another shape, or holds a scale that is not finite.
        """
        if self.has(name) and self._checkpoint.shape(name) == (padded_outputs, num_inputs):
            stored = self._stored(name, (padded_outputs, num_inputs), rows=num_outputs)
        else:
            stored = self._stored(name, (num_outputs, num_inputs))
        matrix = pack(stored)
        self.nbytes += matrix.nbytes
        return matrix

    def vector(self, name: str, size: int) -> Vector:
        """Return a float32 vector: a norm's weight."""
        return Vector(self.values(name, size))

    def values(self, name: str, size: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Return `size` float32 values: a bias."""
        stored = self._stored(name, (size,))
        values = np.ascontiguousarray(stored.unpack().reshape(size), dtype=np.float32)
        self.nbytes += values.nbytes
        return values

    def array(
        self, name: str, shape: tuple[int, ...]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """Return float32 values of any shape: a small tensor that no matrix product takes."""
        stored = self._stored(name, shape)
        values = np.ascontiguousarray(stored.unpack().reshape(shape), dtype=np.float32)
        self.nbytes += values.nbytes
        return values

    def linear(
        self,
        names: Sequence[str],
        outputs: Sequence[int],
        num_inputs: int,
        *,
        bias: bool = False,
        is_delicate: bool = False,
    ) -> Linear:
        """Return one layer whose outputs are those of the tensors `NAME.weight`, joined.

        Args:
            names: Tensor names without their last part.
            outputs: Outputs of each.
            num_inputs: Inputs of all.
            bias: Whether `NAME.bias` exists for every name.
            is_delicate: Whether activations keep 16 bits even in "fast" numerics.
        """
        parts = [
            self.matrix(f"{name}.weight", size, num_inputs)
            for name, size in zip(names, outputs, strict=True)
        ]
        if len({part.rotated for part in parts}) > 1:  # they share their activations
            parts = [Matrix.from_float(p.unpack()) if p.rotated else p for p in parts]
        joined = None
        if bias:
            joined = np.concatenate(
                [self.values(f"{n}.bias", size) for n, size in zip(names, outputs, strict=True)]
            )
        return Linear(parts, joined, self._delicate if is_delicate else self._numerics)

    def stored(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        """Return a tensor as the file holds it, for a layer that takes it apart.

        Raises:
            CheckpointError: it is missing, of another shape, or holds a scale that is not finite.
        """
        return self._stored(name, shape)

    def head_linear(
        self,
        heads: list[Matrix],
        input_scales: np.ndarray[tuple[int, int, int], np.dtype[np.float32]] | None = None,
        scale_outputs: int = 0,
    ) -> HeadLinear:
        """Return a layer with one matrix per head; see `kernels.HeadLinear`.

        Activations keep 16 bits even in "fast" numerics.
        """
        layer = HeadLinear(heads, input_scales, scale_outputs, self._delicate)
        self.nbytes += layer.nbytes
        return layer

    def layer_of(self, matrix: Matrix) -> Linear:
        """Return a layer over a matrix that was read before: a head."""
        return Linear([matrix], None, self._numerics)

    def expert(
        self,
        prefix: str,
        num_inputs: int,
        width: int,
        *,
        bias: bool = False,
        clamp: tuple[float, float] | None = None,
    ) -> Expert:
        """Return the gated block `prefix.{gate,up,down}_proj`.

        Args:
            prefix: What the names begin with.
            num_inputs: Inputs, and outputs.
            width: Outputs of gate and of up.
            bias: Whether all three have one.
            clamp: (limit, alpha) of a clamped gated unit; None for the plain one.
        """
        gate_up = self.linear(
            [f"{prefix}.gate_proj", f"{prefix}.up_proj"], [width, width], num_inputs, bias=bias
        )
        down = self.linear([f"{prefix}.down_proj"], [num_inputs], width, bias=bias)
        return Expert(gate_up, down, clamp)

    def experts(
        self,
        prefix: str,
        count: int,
        num_inputs: int,
        width: int,
        *,
        bias: bool = False,
        clamp: tuple[float, float] | None = None,
    ) -> ExpertSet:
        """Return the routed experts `prefix.0` to `prefix.(count - 1)`; see `expert`.

        Where a store streams them their matrices are not read now.

        Args:
            prefix: What their names begin with.
            count: How many.
            num_inputs: Inputs, and outputs.
            width: Outputs of gate and of up.
            bias: Whether all three matrices have one.
            clamp: (limit, alpha) of a clamped gated unit; None for the plain one.
        """
        streamed = self._streamed(prefix, count, num_inputs, width, clamp)
        if streamed is not None:
            biases = None
            if bias:
                biases = [self._biases(f"{prefix}.{e}", num_inputs, width) for e in range(count)]
            form = replace(streamed, biases=biases)
            assert self._store is not None
            return StreamedExperts(self._store, self._store.add_layer(prefix, form))
        before = self.nbytes
        experts = [
            self.expert(f"{prefix}.{e}", num_inputs, width, bias=bias, clamp=clamp)
            for e in range(count)
        ]
        self.expert_nbytes += self.nbytes - before
        if self._store is not None:
            self._store.skip_layer(prefix)
        return ResidentExperts(experts, self.counters)

    def _streamed(
        self,
        prefix: str,
        count: int,
        num_inputs: int,
        width: int,
        clamp: tuple[float, float] | None,
    ) -> ExpertForm | None:
        """Return what the store's experts of a layer are, their names accounted for, if it has it.

        Raises:
            CheckpointError: there are fewer of them, or they have another shape.
        """
        store = self._store
        if store is None or prefix not in store.table.layers:
            return None
        records = store.table.layers[prefix]
        form = ExpertForm(records.record, self._numerics, clamp)
        if not form.is_viewable or len(records.places) != count:
            return None  # read like any other, or refused there for what is missing
        shapes = dict(zip(PARTS, ((width, num_inputs),) * 2 + ((num_inputs, width),), strict=True))
        for expert in range(count):
            for part, shape in shapes.items():
                self._account(f"{prefix}.{expert}.{part}.weight", shape)
        return form

    def _biases(self, prefix: str, num_inputs: int, width: int) -> tuple[Values, Values]:
        gate, up, down = PARTS
        first = [self.values(f"{prefix}.{part}.bias", width) for part in (gate, up)]
        return np.concatenate(first), self.values(f"{prefix}.{down}.bias", num_inputs)

    def unread(self) -> list[str]:
        """Return the names nobody asked for, sorted."""
        return sorted(self._names - self._consumed)

    def skip(self, name: str) -> None:
        """Count a tensor as accounted for without reading it."""
        self._consumed.add(name)

    def _stored(
        self, name: str, shape: tuple[int, ...], *, rows: int | None = None
    ) -> StoredTensor:
        self._account(name, shape)
        if rows is None:
            stored = self._checkpoint.tensor(name)
        else:
            stored = self._checkpoint.rows(name, 0, rows)
        self._check_finite(name, stored)
        return stored

    def _account(self, name: str, shape: tuple[int, ...]) -> None:
        """Take note that a tensor is used, and check that it is as it should be."""
        if name in self._consumed:
            raise AssertionError(f"tensor {name} is read twice")
        if name not in self._names:
            raise CheckpointError(
                f"tensor {name} is missing",
                path=self._checkpoint.path,
                tensor=name,
                hint="the download may be incomplete: pull the model again",
            )
        found = self._checkpoint.shape(name)
        if found != shape:
            raise CheckpointError(
                f"tensor {name} has shape {list(found)}; the configuration asks for {list(shape)}",
                path=self._checkpoint.path,
                tensor=name,
                hint="the configuration and the weights do not belong together",
            )
        self._consumed.add(name)

    def _check_finite(self, name: str, stored: StoredTensor) -> None:
        """Refuse scales that would turn every answer into NaN."""
        if not isinstance(stored, IntTensor):  # packed ones are checked where they are read
            return
        if not stored.is_finite:
            raise CheckpointError(
                f"tensor {name} holds a scale that is not finite",
                path=self._checkpoint.path,
                tensor=name,
                hint="the file is damaged: pull the model again",
            )


def pack(stored: StoredTensor) -> Matrix:
    """Return the kernels' form of a two-dimensional stored tensor, exactly."""
    if isinstance(stored, PackedTensor):
        return _take_packed(stored)
    if isinstance(stored, IntTensor):
        return Matrix.from_codes(
            stored.codes,
            stored.scales,
            stored.zero,
            stored.mins,
            bits=stored.bits,
            group=stored.group,
            rotated=stored.rotated,
            levels=stored.levels,
        )
    if isinstance(stored, Fp8Tensor):
        return Matrix.from_fp8(stored.codes, stored.scales, group=stored.group)
    is_bf16 = stored.array.dtype == np.uint16
    return Matrix.from_float(np.ascontiguousarray(stored.array), bf16=is_bf16)


def _take_packed(stored: PackedTensor) -> Matrix:
    layout = stored.layout
    return Matrix.from_packed(
        stored.packed,
        (layout.num_outputs, layout.num_inputs),
        layout.zero,
        bits=layout.bits,
        group=layout.group,
        scale_bytes=layout.scale_bytes,
        rotated=layout.rotated,
        levels=layout.levels,
        fp8=layout.fp8,
    )
