"""From a checkpoint to a loaded model: one table, one call."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.layers.rope import check_rotation
from colibri_engine.layers.weights import WeightReader
from colibri_engine.loader.architectures import ADDED_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.experts.store import ExpertStore
    from colibri_engine.kernels import LayerLayout
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.models.base import Model, ModelConfig

logger = logging.getLogger(__name__)

# model_type -> module; an alias is one line.
MODULES: Final = {
    "llama": "llama",
    "deepseek_v3": "deepseek_v3",
    "glm4_moe": "glm4_moe",
    "glm_moe_dsa": "glm_moe_dsa",
    "kimi_k2": "deepseek_v3",
    "gpt_oss": "gpt_oss",
    "inkling_mm_model": "inkling",
    "inkling_text": "inkling",
    "olmoe": "olmoe",
    "qwen3_moe": "qwen3_moe",
}

_added: Final[dict[str, str]] = {}  # model_type -> module of a plugin

# Older files keep the rotary tables, which follow from the configuration.
_DERIVED: Final = re.compile(r"\.rotary_emb\.inv_freq$")
_LAYER: Final = re.compile(r"^model\.layers\.(\d+)\.")


def load_model(
    checkpoint: Checkpoint,
    *,
    numerics: str = "default",
    experts_per_token: int | None = None,
    store: ExpertStore | None = None,
    with_draft_layer: bool = True,
) -> Model:
    """Read and pack all weights.

    Args:
        checkpoint: The opened files.
        numerics: "default", "fast" or "float"; see docs/numerics.md.
        experts_per_token: Another number of routed experts than the model's own.
        store: What streams the routed experts it has records of; None: all are read now.
        with_draft_layer: Whether a layer that only drafts is read, where the model can use it.

    Raises:
        UnsupportedModel: the architecture or a configuration value is not implemented.
        CheckpointError: a tensor is missing, misshapen, damaged, or unknown to the architecture.
    """
    module, config = _read_config(checkpoint, experts_per_token)
    if not with_draft_layer and getattr(config, "num_draft_layers", None):
        config = replace(config, num_draft_layers=0)
    weights = WeightReader(checkpoint, numerics, store)
    model: Model = module.Model(config, checkpoint.config, weights)
    unused: Mapping[str, str] = getattr(module, "UNUSED_TENSORS", {})
    _check_unread(checkpoint, _without(unused, weights.unread()), config.num_layers)
    return model


def add_architectures(modules: Mapping[str, str]) -> None:
    """Let this process load further architectures.

    Args:
        modules: By `model_type`, the module that offers what those of `colibri_engine.models` do.

    Raises:
        UnsupportedModel: one of them is here already.
    """
    for model_type, module in modules.items():
        if model_type in MODULES or _added.get(model_type, module) != module:
            raise UnsupportedModel(
                f"the architecture {model_type!r} is here already",
                hint=f"disable the plugin that adds {module}",
            )
        if model_type not in _added:
            ADDED_TYPES.append(model_type)
        _added[model_type] = module


def architecture(model_type: object) -> Any:  # noqa: ANN401 - a module
    """Return the module of an architecture.

    Raises:
        UnsupportedModel: there is none, or a plugin's cannot be imported.
    """
    if model_type in MODULES:
        return import_module(f"colibri_engine.models.{MODULES[model_type]}")
    if model_type not in _added:
        raise UnsupportedModel(
            f"architecture {model_type!r} is not supported",
            hint=f"supported: {', '.join(sorted({*MODULES, *_added}))}",
        )
    try:
        return import_module(_added[model_type])
    except ImportError as exc:
        raise UnsupportedModel(
            f"architecture {model_type!r}: {exc}", hint="repair or disable the plugin that adds it"
        ) from exc


def read_sizes(checkpoint: Checkpoint, experts_per_token: int | None = None) -> ModelConfig:
    """Return the sizes of a model without reading its weights. Raises as `load_model`."""
    config: ModelConfig = _read_config(checkpoint, experts_per_token)[1]
    return config


def cache_layouts(checkpoint: Checkpoint) -> list[LayerLayout]:
    """Return what each layer keeps of a sequence, without reading weights.

    Raises:
        UnsupportedModel: the architecture or a configuration value is not implemented.
    """
    module, config = _read_config(checkpoint, None)
    layouts: list[LayerLayout] = module.cache_layouts(config, checkpoint.names())
    return layouts


def draft_layouts(checkpoint: Checkpoint) -> list[LayerLayout]:
    """Return what a layer that only drafts keeps of a sequence; empty where there is none.

    Raises:
        UnsupportedModel: the architecture or a configuration value is not implemented.
    """
    module, config = _read_config(checkpoint, None)
    if not hasattr(module, "draft_layouts"):
        return []
    layouts: list[LayerLayout] = module.draft_layouts(config, checkpoint.names())
    return layouts


def _read_config(checkpoint: Checkpoint, experts_per_token: int | None) -> tuple[Any, Any]:
    """Return the module of an architecture, and the sizes of a checkpoint."""
    model_type = checkpoint.config.get("model_type")
    module = architecture(model_type)
    config = module.Config.from_checkpoint(checkpoint.config)
    check_rotation(checkpoint.config)
    if experts_per_token is not None:
        if config.num_experts == 0:
            raise UnsupportedModel(
                f"{experts_per_token} experts per token asked for; {model_type} has no experts",
                hint="leave the setting out for a dense model",
            )
        config = config.with_experts_per_token(experts_per_token)
    return module, config


def _without(unused: Mapping[str, str], names: list[str]) -> list[str]:
    """Return the names that the architecture does not leave out; say how many it does.

    Args:
        unused: Patterns of names, and what such tensors are.
        names: Tensors that nobody read.
    """
    rest = names
    for pattern, what in unused.items():
        kept = [name for name in rest if not re.match(pattern, name)]
        if len(kept) < len(rest):
            logger.info("%d tensors of %s are not used", len(rest) - len(kept), what)
        rest = kept
    return rest


def _check_unread(checkpoint: Checkpoint, names: list[str], num_layers: int) -> None:
    """Refuse tensors the architecture has no place for; say which drafts are left out."""
    drafts = 0
    for name in names:
        layer = _LAYER.match(name)
        if layer is not None and int(layer.group(1)) >= num_layers:
            drafts += 1
        elif not _DERIVED.search(name):
            raise CheckpointError(
                f"tensor {name} has no place in {checkpoint.config.get('model_type')}",
                path=checkpoint.path,
                tensor=name,
                hint="the checkpoint uses a feature this version does not implement",
            )
    if drafts:
        logger.info("%d tensors of the draft head are not used", drafts)
