"""Which source reads the quantized tensors of a published checkpoint, by `quant_method`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import UnsupportedQuantFormat
from colibri_engine.loader.compressed_tensors import CompressedTensors
from colibri_engine.loader.fp8_tensors import Fp8Tensors
from colibri_engine.loader.nvfp4_tensors import Nvfp4Tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_engine.loader.shards import ShardSet
    from colibri_engine.loader.tensor_source import TensorSource

_SOURCES: Final[dict[str, Callable[[ShardSet, Mapping[str, Any]], TensorSource]]] = {
    "fp8": Fp8Tensors,
    "compressed-tensors": CompressedTensors,
    "modelopt": Nvfp4Tensors,
}

_BLOCKS_OF_EXPERTS: Final = ("gpt_oss", "mxfp4")


def quantized_tensors(shards: ShardSet, config: Mapping[str, Any]) -> TensorSource:
    """Return the source for what `quantization_config` describes.

    Args:
        shards: The files.
        config: Keys of `config.json`.

    Raises:
        UnsupportedQuantFormat: the method, or a value of its description, is not implemented.
        CheckpointError: tensors that belong together are not.
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return Fp8Tensors(shards, {})
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if (config.get("model_type"), method) == _BLOCKS_OF_EXPERTS:
        return Fp8Tensors(shards, {})  # the blocks are no matter of one matrix: see loader.stacks
    source = _SOURCES.get(method) if isinstance(method, str) else None
    if source is None:
        raise UnsupportedQuantFormat(
            f"{shards.directory} is quantised by {str(method)[:60]!r} "
            "(quantization_config.quant_method), which is not supported",
            hint=f"supported: {', '.join(_SOURCES)}; or use a bf16 or GGUF form of the model",
        )
    return source(shards, quantization)
