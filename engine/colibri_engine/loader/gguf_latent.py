"""Sizes of latent attention and of its indexer, from the metadata of a GGUF file.

Newer files describe the compressed form (`key_length` is the latent and the rotary key together)
and add the sizes of real heads as `key_length_mla` and `value_length_mla`; older ones give those
under `key_length` and `value_length`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.loader.gguf import GgufTensor
    from colibri_engine.loader.metadata_reader import MetadataReader

_MAX_WIDTH: Final = 1 << 16

# Files of GLM-5.2 tell themselves from GLM-5 and 5.1 by their context when they do not list the
# kinds of their indexers; its published configuration then is this.
_SHARING_CONTEXT: Final = 1 << 20
_SHARING: Final = {"index_topk_freq": 4, "index_skip_topk_offset": 3}


def latent_of(
    architecture: str,
    data: MetadataReader,
    config: Mapping[str, Any],
    tensors: Mapping[str, GgufTensor],
) -> dict[str, Any]:
    """Return the sizes under their published names.

    Args:
        architecture: "deepseek2" or "glm-dsa".
        data: The metadata.
        config: What is known of the configuration already.
        tensors: The file's tensors.

    Raises:
        CheckpointError: a key is missing or out of range.
        UnsupportedModel: the sizes do not fit each other.
    """

    def key(name: str) -> str:
        return f"{architecture}.attention.{name}"

    latent = data.integer(key("kv_lora_rank"), 1, _MAX_WIDTH)
    rope_width = data.integer(f"{architecture}.rope.dimension_count", 2, _MAX_WIDTH)
    suffix = "_mla" if key("key_length_mla") in data else ""
    key_width = data.integer(key(f"key_length{suffix}"), 1, _MAX_WIDTH)
    if key_width <= rope_width:
        raise UnsupportedModel(
            f"{key(f'key_length{suffix}')} is {key_width}, of which {rope_width} rotate"
        )
    if suffix and data.integer(key("key_length"), 1, _MAX_WIDTH, None) not in (
        None,
        latent + rope_width,
    ):
        raise UnsupportedModel(f"{key('key_length')} is not {latent} + {rope_width}")
    found = {
        "q_lora_rank": data.integer(key("q_lora_rank"), 1, _MAX_WIDTH, None),
        "kv_lora_rank": latent,
        "qk_nope_head_dim": key_width - rope_width,
        "qk_rope_head_dim": rope_width,
        "v_head_dim": data.integer(key(f"value_length{suffix}"), 1, _MAX_WIDTH),
        "num_key_value_heads": config["num_attention_heads"],
        "rope_interleave": True,
    }
    if architecture == "glm-dsa":
        found |= _indexer(data, config, tensors)
    return found


def _indexer(
    data: MetadataReader, config: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    def key(name: str) -> str:
        return f"glm-dsa.attention.indexer.{name}"

    num_drafts = data.integer("glm-dsa.nextn_predict_layers", 0, config["num_hidden_layers"], 0)
    num_layers = config["num_hidden_layers"] - num_drafts
    found: dict[str, Any] = {
        "index_n_heads": data.integer(key("head_count"), 1, 1024),
        "index_head_dim": data.integer(key("key_length"), 1, _MAX_WIDTH),
        "index_topk": data.integer(key("top_k"), 1, 1 << 24),
        "indexer_rope_interleave": True,
    }
    kinds = data.array(key("types"), num_layers)
    with_indexer = [f"blk.{i}.indexer.attn_k.weight" in tensors for i in range(num_layers)]
    if kinds is not None:
        full = [bool(kind) for kind in kinds.tolist()]
    elif not all(with_indexer):
        full = with_indexer
    elif config["max_position_embeddings"] >= _SHARING_CONTEXT:
        return found | _SHARING
    else:
        return found
    return found | {"indexer_types": ["full" if is_full else "shared" for is_full in full]}
