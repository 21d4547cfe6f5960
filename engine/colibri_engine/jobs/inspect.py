"""Look at a model without reading its weights: `python -m colibri_engine inspect PATH`.

The settings are those an engine would be started with, SNAP among them. Writes one line
`STAGE {json}` per stage, in order: files, texts, config, tokenizer, tensors, memory, machine. A
stage that fails has the key `error` (code, message, hint); when files fail, all but the last are
left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_engine import kernels, machine
from colibri_engine.config import read_config
from colibri_engine.errors import ColibriError, reason_of
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.memory_plan import check_mirrors, open_store
from colibri_engine.models.registry import architecture
from colibri_engine.planning.model_sizes import sizes_of
from colibri_engine.planning.placement import expected_placement
from colibri_engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_engine.jobs.base import JobOutput
    from colibri_engine.loader.base import Checkpoint

_LAYER: Final = re.compile(r"^(model\.layers\.)(\d+)\.(.+)$")
_EXPERT: Final = re.compile(r"(\.experts\.)(\d+)\.")
_SHARED: Final = ".indexer."  # a layer may use that of another
_MAX_NAMED: Final = 8
_ENDS: Final = {
    "embeddings": ("model.embed_tokens.weight",),
    "final norm": ("model.norm.weight",),
    "head": ("lm_head.weight", "model.embed_tokens.weight"),  # tied heads are the embeddings
}


def run(argv: list[str], output: JobOutput) -> None:
    """Inspect the model at the path given."""
    path = Path(argv[0]) if argv else Path()
    found: list[Checkpoint] = []

    def files() -> dict[str, Any]:
        further = read_config(()).model_dirs
        found.append(open_checkpoint(path, further))
        return _files(found[0])

    if not _stage(output, "files", files):
        _stage(output, "machine", _machine)
        return
    checkpoint = found[0]
    try:
        _stage(output, "texts", lambda: _texts(checkpoint))
        _stage(output, "config", lambda: _config(checkpoint))
        _stage(output, "tokenizer", lambda: _tokenizer(checkpoint))
        _stage(output, "tensors", lambda: _tensors(checkpoint))
        _stage(output, "memory", lambda: _memory(checkpoint))
        _stage(output, "machine", _machine)
    finally:
        checkpoint.close()


def _stage(output: JobOutput, name: str, look: Callable[[], Mapping[str, Any]]) -> bool:
    """Write what one stage found; False if it failed."""
    try:
        body = {"stage": name, **look()}
    except (ColibriError, OSError) as error:
        code, hint = getattr(error, "code", "os_error"), getattr(error, "hint", None)
        body = {"stage": name, "error": {"code": code, "message": reason_of(error), "hint": hint}}
    output.say("STAGE", json.dumps(body, ensure_ascii=False))
    return "error" not in body


def _files(checkpoint: Checkpoint) -> dict[str, Any]:
    files = checkpoint.weight_files()
    return {
        "files": [{"name": file.name, "bytes": file.stat().st_size} for file in files],
        "bytes": checkpoint.nbytes,
        "is_gguf": any(file.suffix == ".gguf" for file in files),
    }


def _texts(checkpoint: Checkpoint) -> dict[str, Any]:
    special = checkpoint.special_tokens
    return {
        "chat_template": checkpoint.chat_template,
        "bos_token": special.bos_token,
        "eos_token": special.eos_token,
        "config": dict(checkpoint.config),
    }


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    module = architecture(checkpoint.config.get("model_type"))
    config = module.Config.from_checkpoint(checkpoint.config)
    return {
        "model_type": config.model_type,
        "num_layers": config.num_layers,
        "num_experts": config.num_experts,
        "num_experts_per_token": config.num_experts_per_token,
        "vocab_size": config.vocab_size,
        "hidden_size": checkpoint.config.get("hidden_size"),
        "max_positions": config.max_positions,
        "has_chat_template": checkpoint.chat_template is not None,
    }


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any]:
    tokenizer = Tokenizer(checkpoint.tokenizer)
    return {
        "special_tokens": len(tokenizer.special_tokens),
        "end_tokens": list(checkpoint.special_tokens.eos_token_ids),
    }


def _tensors(checkpoint: Checkpoint) -> dict[str, Any]:
    formats: Counter[str] = Counter()
    experts: dict[int, set[int]] = {}
    layers: dict[int, set[str]] = {}
    for name in checkpoint.names():
        checkpoint.shape(name)
        formats[checkpoint.format_name(name)] += 1
        if in_layer := _LAYER.match(name):
            layer = int(in_layer[2])
            if expert := _EXPERT.search(name):
                experts.setdefault(layer, set()).add(int(expert[2]))
            if _SHARED not in name:
                layers.setdefault(layer, set()).add(_EXPERT.sub(r"\1*.", in_layer[3]))
    names = set(checkpoint.names())
    missing = [what for what, any_of in _ENDS.items() if not names.intersection(any_of)]
    missing += _gaps(checkpoint, layers, experts)
    return {
        "num_tensors": len(names),
        "formats": dict(formats.most_common()),
        "mixture_layers": len(experts),
        "missing": missing[:_MAX_NAMED],
        "num_missing": len(missing),
    }


def _gaps(
    checkpoint: Checkpoint, layers: Mapping[int, set[str]], experts: Mapping[int, set[int]]
) -> list[str]:
    """Return what layers lack that others like them have: layers, tensors, single experts."""
    num_layers = int(checkpoint.config.get("num_hidden_layers") or 0)
    missing = [f"layer {i}" for i in range(num_layers) if i not in layers]
    kinds = Counter(frozenset(names) for names in layers.values())
    usual = [kind for kind, count in kinds.items() if count > 1]
    for layer, names in sorted(layers.items()):
        larger = [kind for kind in usual if kind > names]
        if kinds[frozenset(names)] == 1 and larger:
            lacks = min(larger, key=len) - names
            missing += [f"layer {layer}: {name}" for name in sorted(lacks)]
    most = max((len(found) for found in experts.values()), default=0)
    missing += [
        f"layer {layer}: expert {expert}"
        for layer, found in sorted(experts.items())
        for expert in sorted(set(range(most)) - found)
    ]
    return missing


def _memory(checkpoint: Checkpoint) -> dict[str, Any]:
    memory, config = machine.memory(), read_config(())
    sizes = sizes_of(checkpoint, config)
    expected = expected_placement(checkpoint, sizes, config, memory)
    if expected.streams:
        open_store(checkpoint, config.memory).close()
    else:
        check_mirrors(checkpoint, config.memory)
    return {
        "available_bytes": memory.available,
        "total_bytes": memory.total,
        "is_streamed": expected.streams,
        "excess": expected.excess,
    }


def _machine() -> dict[str, Any]:
    memory = machine.memory()
    return {
        "cpu": machine.cpu_name(),
        "num_cores": machine.num_usable_cores(),
        "available_bytes": memory.available,
        "total_bytes": memory.total,
        "isa": kernels.active_isa(),
        "isas": list(kernels.available_isas()),
    }
