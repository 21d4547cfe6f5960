"""A language model inside another model: its configuration and its tensors, seen as its own.

Checkpoints that also see or hear keep the language model's configuration under `text_config` and
its tensors behind a prefix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_INNER: Final = "text_config"
# What such checkpoints write beside the inner configuration although it is about the weights.
_CARRIED: Final = ("quantization_config", "tie_word_embeddings", "bos_token_id", "eos_token_id")
_EMBEDDING: Final = "embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
_OTHER_SENSES: Final = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|audio|audio_tower|multi_modal_projector)\..+"
)


def inner_config(config: Mapping[str, Any], known: Collection[str]) -> dict[str, Any] | None:
    """Return the configuration of the language model inside another one, or None.

    Args:
        config: Keys of `config.json`.
        known: Architectures that can be opened.
    """
    inner = config.get(_INNER)
    if config.get("model_type") in known or not isinstance(inner, dict):
        return None
    if inner.get("model_type") not in known:
        return None
    return {**{key: config[key] for key in _CARRIED if key in config}, **inner}


def inner_names(names: Collection[str]) -> dict[str, str]:
    """Return the tensors of the language model: published name -> name in the files.

    Tensors of the other senses are not there; a name that fits nothing stays as it is.
    """
    prefix = next(
        (n.removesuffix(_EMBEDDING) for n in names if n.endswith(f".{_EMBEDDING}")), "model."
    )
    published: dict[str, str] = {}
    for name in names:
        if name.startswith(prefix):
            published["model." + name.removeprefix(prefix)] = name
        elif name == _HEAD or name.endswith(f".{_HEAD}"):
            published[_HEAD] = name
        elif not _OTHER_SENSES.fullmatch(name):
            published[name] = name
    return published
