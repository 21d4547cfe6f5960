"""What a model is given to load from, whatever the files look like.

Names, shapes and tensors follow the published checkpoints of Hugging Face: a GGUF file is shown
under those names and with such a configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from colibri_engine.loader.stream_tensors import StoredExperts
    from colibri_engine.loader.tensor_source import RawRows
    from colibri_engine.loader.tokenizer_source import TokenizerSource
    from colibri_engine.quant.base import Floats, StoredTensor
    from colibri_engine.quant.tiles import TileLayout


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Which tokens begin and end texts, from every source the files offer.

    Args:
        bos_token: Text of the first token, or None.
        eos_token: Text of the main end token, or None.
        bos_token_id: Id of `bos_token`, or None.
        eos_token_ids: Ids at which generation ends: the union of all sources, ascending.
    """

    bos_token: str | None
    eos_token: str | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


class Checkpoint(Protocol):
    """One opened model. Tensors are read when asked for; errors name file and tensor."""

    @property
    def path(self) -> Path:
        """The directory or file."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Keys of `config.json`; for a GGUF file made from its metadata."""

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Keys of `generation_config.json`; empty when there is none."""

    @property
    def tokenizer(self) -> TokenizerSource:
        """What `colibri_engine.tokenizer.Tokenizer` is built from."""

    @property
    def chat_template(self) -> str | None:
        """The Jinja template, or None."""

    @property
    def special_tokens(self) -> SpecialTokens:
        """Beginning and end tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes of all weight files."""

    def weight_files(self) -> Sequence[Path]:
        """Return the weight files, in an order that depends on their names alone."""

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, outermost first.

        Raises:
            CheckpointError: there is no such tensor.
        """

    def tensor(self, name: str) -> StoredTensor:
        """Read a tensor as it is stored.

        Raises:
            CheckpointError: it is missing, or its bytes cannot be right.
            UnsupportedQuantFormat: its number format is not implemented.
        """

    def array(self, name: str) -> Floats:
        """Read a tensor as float32, exactly. Raises as `tensor`."""

    def format_name(self, name: str) -> str:
        """Return the name of the number format a tensor is stored in ("BF16", "Q4_K").

        Raises:
            CheckpointError: there is no such tensor.
        """

    def rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read rows `first` to `first + count - 1` of a matrix as they are stored.

        Args:
            name: A tensor of two dimensions.
            first: A multiple of 128, so that no block of a format is cut.
            count: Rows to read.

        Raises:
            CheckpointError: as `tensor`.
        """

    def close(self) -> None:
        """Close the files. Reading afterwards fails; a second call does nothing."""


@runtime_checkable
class StreamedCheckpoint(Protocol):
    """A checkpoint whose routed experts can be read one by one while it answers."""

    def stored_experts(self) -> Mapping[str, StoredExperts]:
        """Return the layers whose experts can be read one by one, by prefix of their names."""


@runtime_checkable
class RawCheckpoint(Protocol):
    """A checkpoint with matrices whose bytes do not follow from what the kernels take."""

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix."""

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows of a matrix that has them as the layout with separate scales holds them.

        Args:
            name: The matrix.
            first: A multiple of 128.
            count: Rows to read.

        Raises:
            CheckpointError: as `Checkpoint.tensor`.
        """


@runtime_checkable
class PackedCheckpoint(Protocol):
    """A checkpoint that knows of some matrices how they will lie in memory."""

    def tile_layout(self, name: str) -> TileLayout | None:
        """Return the packed sizes of a matrix; None where its number format alone decides."""
