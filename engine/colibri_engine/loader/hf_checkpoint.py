"""A model directory: `config.json` and safetensors files, published or converted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.loader.architectures import ADDED_TYPES, MEANINGLESS_DEFAULTS, MODEL_TYPES
from colibri_engine.loader.container_tensors import ContainerTensors
from colibri_engine.loader.file_places import FilePlaces
from colibri_engine.loader.hf_tokenizer import TokenizerFiles
from colibri_engine.loader.json_file import is_there, read_json, shown
from colibri_engine.loader.nested_models import inner_config, inner_names
from colibri_engine.loader.plain_tensors import PlainTensors
from colibri_engine.loader.published_parts import published_parts
from colibri_engine.loader.quantized_tensors import quantized_tensors
from colibri_engine.loader.shards import ShardFile, ShardSet
from colibri_engine.loader.stream_tensors import StreamTensors
from colibri_engine.loader.tensor_source import RawSource, RowSource
from colibri_engine.quant.base import stored_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from colibri_engine.loader.stream_tensors import StoredExperts
    from colibri_engine.loader.tensor_source import RawRows, TensorSource
    from colibri_engine.quant.base import Floats, StoredTensor
    from colibri_engine.quant.tiles import TileLayout

_MAX_CONFIG_BYTES: Final = 256 << 20
_LAYER: Final = re.compile(r"model\.layers\.([0-9]{1,6})\.")
_EMBEDDING: Final = "model.embed_tokens.weight"
_NEEDED: Final = (_EMBEDDING, "model.norm.weight")


class HfCheckpoint:
    """One model directory of a supported architecture. See `loader.base.Checkpoint`.

    Args:
        path: The directory.
        arriving: Its weight files, where they are not there yet.
        further: Other directories in which some of its weight files lie.

    Raises:
        CheckpointError: a file is missing, damaged, incomplete or contradicts another.
        UnsupportedModel: the architecture or tokenizer is not implemented.
        UnsupportedQuantFormat: the number format is not implemented.
    """

    def __init__(
        self,
        path: Path,
        arriving: Sequence[ShardFile] | None = None,
        further: Sequence[Path] = (),
    ) -> None:
        self.path = path
        config = _read_config(path)
        inner = inner_config(config, _known_types())
        self.config: Mapping[str, Any] = config if inner is None else inner
        self._shards = ShardSet(path, arriving, further)
        self._places: FilePlaces | None = None
        try:
            if inner is not None:
                self._shards.rename(inner_names(self._shards.names()))
            self._sources = self._find_sources()
            self._check_core()
            generation = path / "generation_config.json"
            self.generation_config: Mapping[str, Any] = (
                read_json(generation, _MAX_CONFIG_BYTES) if is_there(generation) else {}
            )
            files = TokenizerFiles(path)
            self.tokenizer = files.source()
            self.chat_template = files.chat_template()
            self.special_tokens = files.special_tokens(
                _without_defaults(self.config), self.generation_config
            )
        except BaseException:
            self._shards.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of all weight files."""
        return self._shards.nbytes

    def weight_files(self) -> Sequence[Path]:
        """Return the weight files by name."""
        return sorted(path for path, _ in self._shards.metadata())

    def names(self) -> Collection[str]:
        """Return the names of all tensors, without the scales that belong to another."""
        return self._sources.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, outermost first."""
        return self._source(name).shape(name)

    def tensor(self, name: str) -> StoredTensor:
        """Read a tensor as it is stored."""
        return self._source(name).read(name)

    def array(self, name: str) -> Floats:
        """Read a tensor as float32, exactly."""
        return self.tensor(name).unpack()

    def format_name(self, name: str) -> str:
        """Return the name of the number format a tensor is stored in."""
        return self._source(name).format_name(name)

    def rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a matrix as they are stored."""
        source = self._source(name)
        if isinstance(source, RowSource):
            return source.read_rows(name, first, count)
        return stored_rows(source.read(name), first, count)

    def stored_experts(self) -> Mapping[str, StoredExperts]:
        """Return the layers whose experts can be read one by one, by prefix of their names."""
        return self._streamed.experts()

    def tile_layout(self, name: str) -> TileLayout | None:
        """Return the packed sizes of a matrix; None where its number format alone decides."""
        source = self._source(name)
        return source.tile_layout(name) if isinstance(source, StreamTensors) else None

    def files_of(self, name: str) -> frozenset[str]:
        """Return the names of the weight files that hold what a tensor is read from.

        Where it is a part of others, those that hold its layer.
        """
        if self._places is None:
            self._places = FilePlaces(self._shards)
        return self._places.of(name)

    def close_file(self, name: str) -> None:
        """Close one weight file."""
        self._shards.close_file(name)

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix."""
        source = self._source(name)
        return isinstance(source, RawSource) and source.has_raw(name)

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows of a matrix that has them as the layout with separate scales holds them."""
        source = self._source(name)
        assert isinstance(source, RawSource)
        return source.raw_rows(name, first, count)

    def close(self) -> None:
        """Close all files."""
        self._shards.close()

    def _find_sources(self) -> dict[str, TensorSource]:
        """Return who reads each tensor."""
        shards = self._shards
        container = ContainerTensors(shards, self.config)
        streamed = self._streamed = StreamTensors(shards)
        # A container keeps the configuration of what it was converted from.
        is_converted = container.names() or streamed.names()
        quantized = quantized_tensors(shards, {} if is_converted else self.config)
        sources: list[TensorSource] = [container, streamed, quantized]
        model_type = str(self.config["model_type"])
        sources.append(published_parts(model_type, shards, _unclaimed(shards, sources)))
        sources.append(PlainTensors(shards, _unclaimed(shards, sources)))
        return {name: source for source in sources for name in source.names()}

    def _source(self, name: str) -> TensorSource:
        source = self._sources.get(name)
        if source is None:
            raise CheckpointError(
                f"{self.path} has no tensor {name}",
                path=self.path,
                tensor=name,
                hint="the download is incomplete or holds another variant of the model",
            )
        return source

    def _check_core(self) -> None:
        tied = self.config.get("tie_word_embeddings", False)
        needed = _NEEDED if tied else (*_NEEDED, "lm_head.weight")
        for name in needed:
            if name not in self._sources:
                raise CheckpointError(
                    f"{self.path} looks like an incomplete download: the tensor {name} is missing",
                    path=self.path,
                    tensor=name,
                    hint="pull the model again",
                )
        self._check_layers()
        self._check_vocabulary()

    def _check_layers(self) -> None:
        """Refuse a model of which whole layers are missing: without an index nothing else tells."""
        count = self.config.get("num_hidden_layers")
        if type(count) is not int:  # refused by name where the configuration is read
            return
        present = {int(match[1]) for match in map(_LAYER.match, self._sources) if match is not None}
        absent = next((layer for layer in range(count) if layer not in present), None)
        if absent is not None:
            raise CheckpointError(
                f"{self.path} looks like an incomplete download: of its {shown(count)} layers "
                f"layer {absent} has no tensor",
                path=self.path,
                hint="pull the model again",
            )

    def _check_vocabulary(self) -> None:
        """Refuse an embedding with other rows than the configuration has tokens."""
        size = self.config.get("vocab_size")
        if type(size) is not int:  # refused by name where the configuration is read
            return
        source = self._source(_EMBEDDING)
        if isinstance(source, ContainerTensors):
            rows = source.num_rows(_EMBEDDING)
        else:
            rows = next(iter(source.shape(_EMBEDDING)), 0)
        if rows != size:
            raise CheckpointError(
                f"config key vocab_size = {shown(size)} of {self.path} contradicts {_EMBEDDING}, "
                f"which has {rows} rows",
                path=self.path,
                tensor=_EMBEDDING,
                hint="the configuration and the weights do not belong together: copy or pull both "
                "again",
            )


def _unclaimed(shards: ShardSet, sources: list[TensorSource]) -> list[str]:
    claimed = {name for source in sources for name in source.claimed}
    return [name for name in shards.names() if name not in claimed]


def _read_config(directory: Path) -> dict[str, object]:
    path = directory / "config.json"
    config = read_json(path, _MAX_CONFIG_BYTES)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise CheckpointError(
            f"{path} does not name a model_type",
            path=path,
            hint="it is not the configuration of a language model",
        )
    if model_type not in _known_types() and inner_config(config, _known_types()) is None:
        raise UnsupportedModel(
            f"{directory} is of the architecture {model_type[:60]!r}, which is not supported",
            hint=f"supported: {', '.join(_known_types())}",
        )
    return config


def _without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without values that its library writes where none was given."""
    defaults = MEANINGLESS_DEFAULTS.get(str(config["model_type"]), {})
    return {
        key: value for key, value in config.items() if key not in defaults or value != defaults[key]
    }


def _known_types() -> tuple[str, ...]:
    return (*MODEL_TYPES, *ADDED_TYPES)
