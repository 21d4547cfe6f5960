"""A GGUF file, seen as a published checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.gguf_config import architecture_of, config_of, generation_of
from colibri_engine.loader.gguf_names import ROPE_FACTORS, TensorView, published_views
from colibri_engine.loader.gguf_parts import GgufParts
from colibri_engine.loader.gguf_tokenizer import GgufVocabulary
from colibri_engine.loader.metadata_reader import MetadataReader
from colibri_engine.quant.base import (
    Floats,
    FloatTensor,
    IntTensor,
    StoredTensor,
    stored_rows,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from colibri_engine.loader.base import SpecialTokens
    from colibri_engine.loader.gguf import GgufTensor
    from colibri_engine.loader.tokenizer_source import TokenizerSource


class GgufCheckpoint:
    """One GGUF model of a supported architecture. See `loader.base.Checkpoint`.

    Args:
        path: The file; of a split model, any part of it.

    Raises:
        CheckpointError: it is damaged, incomplete or contradicts itself.
        UnsupportedModel: its architecture, tokenizer or a feature is not implemented.
        UnsupportedQuantFormat: a tensor is stored in a format that is not implemented.
    """

    def __init__(self, path: Path) -> None:
        self._file = GgufParts(path)
        try:
            self._open(path)
        except BaseException:
            self._file.close()
            raise

    def _open(self, path: Path) -> None:
        file = self._file
        architecture = architecture_of(file)
        for tensor in file.tensors.values():
            file.format(tensor)
        self.path = path
        self.config = config_of(file, self._rope_factors())
        self.generation_config = generation_of(file)
        vocabulary = GgufVocabulary(file.metadata, path)
        self.tokenizer: TokenizerSource = vocabulary.source()
        self.special_tokens: SpecialTokens = vocabulary.special_tokens()
        self.config["bos_token_id"] = self.special_tokens.bos_token_id
        self.config["eos_token_id"] = list(self.special_tokens.eos_token_ids)
        self.chat_template: str | None = MetadataReader(file.metadata, path).text(
            "tokenizer.chat_template", None
        )
        self._views = published_views(
            architecture,
            file.tensors,
            num_heads=self.config["num_attention_heads"],
            num_kv_heads=self.config["num_key_value_heads"],
        )
        if "model.norm.weight" not in self._views:
            raise CheckpointError(
                f"{path} looks like an incomplete download: output_norm.weight is missing",
                path=path,
                tensor="output_norm.weight",
                hint="pull or copy the model again",
            )

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return self._file.size

    def weight_files(self) -> Sequence[Path]:
        """Return the parts in their order."""
        return self._file.paths

    def names(self) -> Collection[str]:
        """Return the published names of all tensors."""
        return self._views.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, outermost first."""
        return self._view(name).shape

    def tensor(self, name: str) -> StoredTensor:
        """Read a tensor as it is stored."""
        view = self._view(name)
        raw = self._file.rows(view.tensor, view.first_row, view.num_rows)
        if view.rotary_heads:
            raw = _split_halves(raw, view, self.path)
        return _shaped(self._decode(view.tensor, raw), view.shape)

    def array(self, name: str) -> Floats:
        """Read a tensor as float32, exactly."""
        return self.tensor(name).unpack().reshape(self.shape(name))

    def format_name(self, name: str) -> str:
        """Return the name of the number format a tensor is stored in."""
        return self._view(name).tensor.type_name

    def rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a matrix as they are stored."""
        view = self._view(name)
        if view.rotary_heads:  # rows of a head change places: small matrices, read whole
            return stored_rows(self.tensor(name), first, count)
        assert first + count <= view.num_rows
        raw = self._file.rows(view.tensor, view.first_row + first, count)
        return _shaped(self._decode(view.tensor, raw), (count, view.shape[-1]))

    def close(self) -> None:
        """Close all files."""
        self._file.close()

    def _decode(self, tensor: GgufTensor, raw: npt.NDArray[np.uint8]) -> StoredTensor:
        with np.errstate(invalid="ignore", over="ignore"):  # damaged scales are refused below
            stored = self._file.format(tensor).to_stored(raw)
        if isinstance(stored, IntTensor):
            self._check_scales(tensor, stored)
        return stored

    def _view(self, name: str) -> TensorView:
        view = self._views.get(name)
        if view is None:
            raise CheckpointError(
                f"{self.path} has no tensor {name}",
                path=self.path,
                tensor=name,
                hint="the file is incomplete or holds another variant of the model",
            )
        return view

    def _rope_factors(self) -> list[float] | None:
        tensor = self._file.tensors.get(ROPE_FACTORS)
        if tensor is None:
            return None
        if len(tensor.shape) != 1 or tensor.type_name != "F32" or tensor.shape[0] > 1 << 16:
            raise CheckpointError(
                f"{self._file.path}: {ROPE_FACTORS} is no list of float32",
                path=self._file.path,
                tensor=ROPE_FACTORS,
            )
        factors: list[float] = self._file.rows(tensor, 0, 1).view("<f4")[0].tolist()
        return factors

    def _check_scales(self, tensor: GgufTensor, stored: IntTensor) -> None:
        if not stored.is_finite:
            raise CheckpointError(
                f"tensor {tensor.name} in {self.path} has a scale that is not finite",
                path=self.path,
                tensor=tensor.name,
                hint="the file is damaged; pull or copy the model again",
            )


def _shaped(stored: StoredTensor, shape: tuple[int, ...]) -> StoredTensor:
    return FloatTensor(stored.array.reshape(shape)) if isinstance(stored, FloatTensor) else stored


def _split_halves(
    raw: npt.NDArray[np.uint8], view: TensorView, path: Path
) -> npt.NDArray[np.uint8]:
    """Reorder the rows of each head from (x0 y0 x1 y1 …) to (x0 x1 … y0 y1 …).

    `llama` files hold query and key rows so that rotary pairs are neighbours; published
    checkpoints, and the kernels, pair row j with row j + half.
    """
    heads = view.rotary_heads
    num_rows = view.shape[0]
    if num_rows % (2 * heads):
        raise CheckpointError(
            f"tensor {view.tensor.name} in {path} has {num_rows} rows, not a multiple of "
            f"{2 * heads}",
            path=path,
            tensor=view.tensor.name,
        )
    pairs = raw.reshape(heads, num_rows // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(raw.shape)
