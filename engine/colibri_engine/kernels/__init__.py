"""The native kernels: packed weights, float rows and the operators on them.

Operators check shapes, write into the caller's rows, release the GIL and run on one team of
threads. Every result is the same bits for any number of rows in the call, any thread count and any
instruction set; see docs/numerics.md. One thread at a time may call operators.
"""

from colibri_engine.errors import KernelUnavailable
from colibri_engine.kernels._kernels import (
    AttentionOptions,
    Batch,
    Choices,
    Expert,
    ExpertTable,
    HeadLinear,
    IndexHeads,
    KvCache,
    KvReader,
    LatentHeads,
    LayerLayout,
    Linear,
    Matrix,
    MoeStep,
    ReadCompletion,
    ReadEngine,
    ReadPriority,
    Rope,
    Router,
    Rows,
    Selection,
    ShortConv,
    SlotArena,
    Vector,
    active_isa,
    attention,
    available_isas,
    built_isas,
    embed,
    head_linear,
    index_select,
    latent_attention,
    layer_norm,
    linear,
    mlp,
    moe,
    num_stalls,
    num_threads,
    rms_norm,
    rms_norm_heads,
    rope_store,
    rotate,
    route,
    set_num_threads,
    short_conv,
    store_index_keys,
    store_kv,
    store_latents,
    swiglu,
)
from colibri_engine.kernels._kernels import set_isa as _set_isa

__all__ = [
    "AttentionOptions",
    "Batch",
    "Choices",
    "Expert",
    "ExpertTable",
    "HeadLinear",
    "IndexHeads",
    "KvCache",
    "KvReader",
    "LatentHeads",
    "LayerLayout",
    "Linear",
    "Matrix",
    "MoeStep",
    "ReadCompletion",
    "ReadEngine",
    "ReadPriority",
    "Rope",
    "Router",
    "Rows",
    "Selection",
    "ShortConv",
    "SlotArena",
    "Vector",
    "active_isa",
    "attention",
    "available_isas",
    "built_isas",
    "embed",
    "head_linear",
    "index_select",
    "latent_attention",
    "layer_norm",
    "linear",
    "mlp",
    "moe",
    "num_stalls",
    "num_threads",
    "rms_norm",
    "rms_norm_heads",
    "rope_store",
    "rotate",
    "route",
    "set_isa",
    "set_num_threads",
    "short_conv",
    "store_index_keys",
    "store_kv",
    "store_latents",
    "swiglu",
]


def set_isa(name: str) -> None:
    """Force an instruction set for every operator from now on.

    Raises:
        KernelUnavailable: this processor lacks it.
    """
    try:
        _set_isa(name)
    except ValueError as exc:
        raise KernelUnavailable(name, available_isas()) from exc
