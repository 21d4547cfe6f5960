"""From a configuration to a loaded engine: files, memory, kernels, model, in that order.

Cheap checks come first, so a start that must fail does so before the weights are read.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from colibri_engine import kernels, machine
from colibri_engine.admission import Admission, GenerationDefaults, generation_value
from colibri_engine.caches import make_cache
from colibri_engine.engine import Engine, Layout
from colibri_engine.errors import BadOption, InsufficientMemory, SettingsError, reason_of
from colibri_engine.experts.budget import gb
from colibri_engine.grammar import GrammarCompiler
from colibri_engine.kv_files.conversations import Kept, Where, open_conversations
from colibri_engine.kv_files.identity import identify
from colibri_engine.kv_files.layout import RowShape
from colibri_engine.kv_files.original import original_shape
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.memory_plan import (
    check_mirrors,
    draft_position_bytes,
    open_store,
    place_experts,
)
from colibri_engine.models.registry import load_model
from colibri_engine.planning.model_sizes import sizes_of
from colibri_engine.planning.placement import expected_placement
from colibri_engine.speculation.selection import make_drafting, wants_draft_layer
from colibri_engine.tokenizer import Tokenizer
from colibri_protocol.messages import ModelInfo

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.experts.store import ExpertStore
    from colibri_engine.experts.tiers import ExpertTiers
    from colibri_engine.grammar import Constraint
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.models.base import Model

logger = logging.getLogger(__name__)

DEFAULT_TEMPERATURE: Final = 0.7
DEFAULT_TOP_P: Final = 0.9
_MAX_GRAMMAR_BYTES: Final = 4 << 20
_NAMED_TOKENS: Final = 3  # of those a model lacks
_END_OF_TEXT: Final = "<|endoftext|>"  # ends a reply even where the configuration forgot it
# Keys of `config.json` that tell a reader how large the model is.
_SIZES: Final = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "kv_lora_rank",
)  # fmt: skip


class Loaded(NamedTuple):
    """What a worker needs."""

    engine: Engine
    tokenizer: Tokenizer
    model_info: ModelInfo
    compiler: GrammarCompiler


def load(config: EngineConfig) -> Loaded:
    """Load the model and build the engine around it.

    Raises:
        EngineError: The model cannot be served here; the message says why.
    """
    if config.isa is not None:
        kernels.set_isa(config.isa)
    kernels.set_num_threads(config.num_threads or machine.num_usable_cores())
    checkpoint = open_checkpoint(config.model_path, config.model_dirs)
    try:
        memory = machine.memory()
        expected = expected_placement(checkpoint, sizes_of(checkpoint, config), config, memory)
        if expected.excess is not None:
            logger.warning("%s", expected.excess)
        store = open_store(checkpoint, config.memory) if expected.streams else None
        if store is None:
            check_mirrors(checkpoint, config.memory)
        tokenizer = Tokenizer(checkpoint.tokenizer)
        model = _load_model(checkpoint, config, store)
        tiers = None
        if store is not None and store.layers:
            tiers = place_experts(store, model, config, memory)
        _tell_context(config, model.config.max_positions)
        _tell_vocabulary(model, tokenizer)
        admission = _admission(checkpoint, config, model, tokenizer)
        kept = _kept(checkpoint, config, model) if config.kv_save else None
        info = ModelInfo(
            {
                **_description(checkpoint, config, model),
                "special_tokens": tokenizer.special_tokens,
                "eos_token_ids": sorted(admission.eos_ids),
                "generation": _told_defaults(admission.defaults),
                "num_threads": kernels.num_threads(),
                "isa": kernels.active_isa(),
            }
        )
    finally:
        checkpoint.close()
    layout = _layout(config, model, store, tiers)
    engine = Engine(model, kernels.Batch(), tokenizer, admission, layout)
    if kept is not None:
        # Of a split GGUF model any part may have been named: the first stands for it.
        path = checkpoint.path if checkpoint.path.is_dir() else checkpoint.weight_files()[0]
        conversations = open_conversations(Where(path, config.kv_dir, config.state_dir), kept)
        if conversations is not None:
            engine.keep(conversations)
    compiler = GrammarCompiler(tokenizer, model.config.vocab_size, admission.eos_ids)
    if config.drafts.grammar_path is not None:
        if engine.uses_guides:
            engine.expect(_expected_grammar(config.drafts.grammar_path, compiler))
        else:
            logger.warning("COLI_DRAFT_GRAMMAR is not used: nothing is drafted from grammars")
    return Loaded(engine, tokenizer, info, compiler)


def _grammar_text(path: Path) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is no plain file")  # a device or a pipe may never end
    with path.open("rb") as file:
        data = file.read(_MAX_GRAMMAR_BYTES + 1)
    if len(data) > _MAX_GRAMMAR_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {_MAX_GRAMMAR_BYTES} bytes")
    return data.decode("utf-8")


def _expected_grammar(path: Path, compiler: GrammarCompiler) -> Constraint:
    """Return the grammar of a file that replies are expected to follow.

    Raises:
        SettingsError: It cannot be read or compiled.
    """
    try:
        return compiler.compile_loosely(_grammar_text(path))
    except (OSError, UnicodeDecodeError, BadOption) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or exc
        raise SettingsError(
            f"the grammar for drafts in {path} cannot be used: {reason}",
            setting="draft_grammar",
            source="COLI_DRAFT_GRAMMAR",
            hint="give a file with a JSON schema or GBNF, or unset it",
        ) from exc


def _layout(
    config: EngineConfig, model: Model, store: ExpertStore | None, tiers: ExpertTiers | None
) -> Layout:
    return Layout(
        config.num_slots,
        config.prefill_chunk,
        machine.num_usable_cores(),
        make_drafting(config, model, store),
        config.kv_share,
        tiers,
        config.kv_dtype,
        draft_position_bytes(model, config),
    )


def _load_model(checkpoint: Checkpoint, config: EngineConfig, store: ExpertStore | None) -> Model:
    if config.experts_per_token is not None:
        logger.warning(
            "%d experts per token instead of the model's own number: answers change",
            config.experts_per_token,
        )
    try:
        return load_model(
            checkpoint,
            numerics=config.numerics,
            experts_per_token=config.experts_per_token,
            store=store,
            with_draft_layer=wants_draft_layer(config.drafts),
        )
    except MemoryError as exc:
        memory = machine.memory()
        raise InsufficientMemory(
            f"memory ran out while the weights ({gb(checkpoint.nbytes)} on disk) were read; "
            f"{gb(memory.available)} are left",
            hint="close other programs, or take a smaller model or one with fewer bits per weight",
        ) from exc


def _tell_context(config: EngineConfig, trained: int) -> None:
    """Say that a context is longer than the model knows; 0: it does not tell."""
    wanted = config.context_length
    if 0 < trained < wanted:
        logger.log(
            logging.WARNING if config.is_context_given else logging.INFO,
            "a context of %d tokens (--ctx) is more than the %d the model was trained for: beyond "
            "those, answers get worse",
            wanted,
            trained,
        )


def _admission(
    checkpoint: Checkpoint, config: EngineConfig, model: Model, tokenizer: Tokenizer
) -> Admission:
    eos_ids = set(checkpoint.special_tokens.eos_token_ids)
    if _END_OF_TEXT in tokenizer.special_tokens:
        eos_ids.add(tokenizer.special_tokens[_END_OF_TEXT])
    eos_ids = {token for token in eos_ids if token < model.config.vocab_size}  # others never come
    if not eos_ids:
        logger.warning("the model names no end token: replies end at their length limit only")
    own = checkpoint.generation_config
    temperature, top_p = config.temperature, config.top_p
    if temperature is None:
        temperature = generation_value(own, "temperature", DEFAULT_TEMPERATURE)
    if top_p is None:
        top_p = generation_value(own, "top_p", DEFAULT_TOP_P)
    defaults = GenerationDefaults(
        max_tokens=config.max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=int(generation_value(own, "top_k", 0)),
        min_p=generation_value(own, "min_p", 0.0),
        repetition_penalty=generation_value(own, "repetition_penalty", 1.0),
        seed=config.seed,
    )
    return Admission(model.config.vocab_size, config.context_length, frozenset(eos_ids), defaults)


def _tell_vocabulary(model: Model, tokenizer: Tokenizer) -> None:
    """Say that the tokenizer knows tokens the model has no weights for.

    Fine-tuned models often have one, for padding, that never occurs in a text.
    """
    size = model.config.vocab_size
    if tokenizer.vocab_size <= size:
        return
    others = [number for number in range(size, tokenizer.vocab_size) if tokenizer.has(number)]
    names = [
        repr(tokenizer.token_bytes(number).decode(errors="replace")[:40])
        for number in others[:_NAMED_TOKENS]
    ]
    if len(others) > len(names):
        names.append("…")
    logger.warning(
        "the tokenizer knows %d tokens, of which the model has %d: prompts with others (%s) are "
        "refused",
        tokenizer.vocab_size,
        size,
        ", ".join(names),
    )


def _kept(checkpoint: Checkpoint, config: EngineConfig, model: Model) -> Kept | None:
    """Return what is saved of each conversation; None, after saying why, if nothing can be."""
    cache = make_cache(model, config.kv_dtype)
    try:
        identity = identify(checkpoint, cache, config.numerics, config.experts_per_token)
    except OSError as exc:
        why = reason_of(exc)
        logger.warning("conversations are not saved: the weights cannot be read again (%s)", why)
        return None
    return Kept(
        identity=identity,
        shape=RowShape.of(cache),
        vocab_size=model.config.vocab_size,
        context_length=config.context_length,
        num_slots=config.num_slots,
        original=original_shape(model.config, cache.layouts),
    )


def _description(checkpoint: Checkpoint, config: EngineConfig, model: Model) -> dict[str, Any]:
    special = checkpoint.special_tokens
    sizes = {key: checkpoint.config[key] for key in _SIZES if key in checkpoint.config}
    return {
        "id": config.model_path.stem if config.model_path.is_file() else config.model_path.name,
        "family": model.config.model_type,
        "architecture": sizes,
        "chat_template": checkpoint.chat_template,
        "bos_token": special.bos_token,
        "eos_token": special.eos_token,
        "context_length": config.context_length,
        "train_context_length": model.config.max_positions,
        "num_layers": model.config.num_layers,
        "num_experts": model.config.num_experts,
        "num_experts_per_token": model.config.num_experts_per_token,
        "mixture_layers": model.mixture_layers,
        "draft_layer": _draft_layer(model),
        "vocab_size": model.config.vocab_size,
        "num_slots": config.num_slots,
        "numerics": config.numerics,
        "kv_dtype": config.kv_dtype,
        "file_bytes": checkpoint.nbytes,
        "resident_bytes": model.resident_bytes,
    }


def _draft_layer(model: Model) -> int | None:
    """Return the number of the draft layer, whose experts are the last row of the expert map."""
    return None if getattr(model, "draft_counts", None) is None else model.config.num_layers


def _told_defaults(defaults: GenerationDefaults) -> dict[str, float]:
    return {
        "temperature": defaults.temperature,
        "top_p": defaults.top_p,
        "top_k": defaults.top_k,
        "min_p": defaults.min_p,
        "repetition_penalty": defaults.repetition_penalty,
        "max_tokens": defaults.max_tokens,
    }
