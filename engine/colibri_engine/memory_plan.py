"""What the model may take of the memory: refused, all in it, or experts that are read as needed.

Headers decide before the weights are read (`planning.placement`); the slots are shared out
afterwards, among what the loaded model takes.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from colibri_engine.caches import make_cache, make_draft_cache
from colibri_engine.errors import CheckpointError, InsufficientMemory, unreadable
from colibri_engine.experts.budget import (
    PROCESS_BYTES,
    MemoryBudget,
    Needs,
    StreamedLayers,
    fits,
    gb,
    place,
    step_bytes,
)
from colibri_engine.experts.guard import MemoryGuard
from colibri_engine.experts.history import History
from colibri_engine.experts.record_reader import open_reader
from colibri_engine.experts.records import RecordTable
from colibri_engine.experts.replicas import find_copies
from colibri_engine.experts.store import ExpertStore
from colibri_engine.experts.tiers import ExpertTiers
from colibri_engine.experts.usage import USAGE_NAME, UsageFile
from colibri_engine.loader.base import StreamedCheckpoint
from colibri_engine.loader.durable import make_own
from colibri_engine.loader.stream_layout import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.engine_config import EngineConfig, MemoryConfig
    from colibri_engine.experts.budget import Placement
    from colibri_engine.experts.records import LayerRecords
    from colibri_engine.kernels import KvCache
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.machine import Memory
    from colibri_engine.models.base import DraftModel, Model, ModelConfig

logger = logging.getLogger(__name__)

_CONVERT: Final = (
    "coli convert: the experts of a converted model that do not fit are read as needed"
)


_GROWN: Final = 1.25  # from which on it is said that files are smaller than what they hold


def open_store(checkpoint: Checkpoint, config: MemoryConfig) -> ExpertStore:
    """Return what streams the experts of a model that has records of some.

    Raises:
        CheckpointError: they cannot be read.
        SettingsError: a mirror cannot be used.
    """
    table = _records(checkpoint)
    try:
        reader = open_reader(
            table.paths, max(layer.nbytes for layer in table.layers.values()), config.reads
        )
    except OSError as exc:
        raise unreadable(Path(exc.filename or checkpoint.path), exc) from exc
    except RuntimeError as exc:
        raise CheckpointError(
            f"the experts of {checkpoint.path} cannot be read: {exc}",
            path=checkpoint.path,
            hint="take another COLI_READ_MODE",
        ) from exc
    return ExpertStore(table, reader, looks_ahead=config.looks_ahead)


def check_mirrors(checkpoint: Checkpoint, config: MemoryConfig) -> None:
    """Look at the mirrors of a model that is all in memory, and say that it needs none.

    Raises:
        SettingsError: a mirror could not be used either.
    """
    mirrors = config.reads.mirrors
    if mirrors:
        find_copies(checkpoint.weight_files(), mirrors)
        logger.warning(
            "COLI_MODEL_MIRROR: %s not read, all of the model is in memory",
            f"{mirrors[0]} is" if len(mirrors) == 1 else f"{len(mirrors)} directories are",
        )


def must_stream(
    budget: MemoryBudget, needs: Needs, layers: StreamedLayers, config: MemoryConfig
) -> bool:
    """Return whether experts are to be read as they are needed: not all of them may stay.

    Args:
        budget: What memory there is.
        needs: What else is in it, full conversations and steps among it.
        layers: The layers whose experts can be read one by one.
        config: What was asked for.
    """
    is_limited = config.cap is not None and not config.may_raise and config.cap < layers.num_experts
    return is_limited or not fits(budget, needs, layers)


class StepShape(NamedTuple):
    """What decides about the buffers of a step, and what a conversation takes for a position."""

    hidden_size: int
    expert_width: int
    vocab_size: int
    position_bytes: int


def needs_of(resident_bytes: int, shape: StepShape, per_token: int, config: EngineConfig) -> Needs:
    """Return what is in memory whatever is cached.

    Args:
        resident_bytes: Weights that are always used.
        shape: Sizes of the model.
        per_token: Experts a row chooses.
        config: Slots and context, all of it taken as full.
    """
    return Needs(
        resident_bytes,
        shape.position_bytes * config.context_length * config.num_slots,
        step_bytes(
            config.step_rows, shape.hidden_size, shape.expert_width, per_token, shape.vocab_size
        ),
    )


def place_experts(
    store: ExpertStore, model: Model, config: EngineConfig, memory: Memory
) -> ExpertTiers:
    """Share out the memory among what a loaded model needs, and open the store.

    Args:
        store: What streams its experts.
        model: The model.
        config: Slots, context and what memory was asked for.
        memory: As it was before the weights were read.

    Raises:
        InsufficientMemory: one expert of each layer does not fit beside the rest.
    """

    def counts() -> npt.NDArray[np.int64]:
        found = model.routing_counts
        assert found is not None  # it has experts
        return found

    placement = slots_of(store, model, config, memory)
    history = History(usage_file(config, model.config), store.model_layers[: len(counts())])
    store.open(
        placement,
        [
            history.rates(layer.model_layer, model.config.num_experts_per_token)
            for layer in store.layers
        ],
    )
    # Said without being asked where something else than the machine or the user decides.
    is_limited = memory.limit is not None or placement.budget.nbytes < (
        config.memory.ram_bytes or 0
    )
    logger.log(
        logging.WARNING if is_limited else logging.INFO,
        "%s of memory (%s): %s for weights and conversations, %d to %d of %d experts of each of %d "
        "layers",
        gb(placement.budget.nbytes),
        placement.budget.source,
        gb(placement.needs.nbytes),
        min(placement.capacities),
        max(placement.capacities),
        model.config.num_experts,
        len(placement.capacities),
    )
    guard = MemoryGuard(store.layers, config.memory.guard_bytes or placement.budget.nbytes)
    tiers = ExpertTiers(store, counts, guard, history, config.memory.history.repin_tokens)
    if config.memory.history.pins:
        tiers.pin()
    return tiers


def slots_of(store: ExpertStore, model: Model, config: EngineConfig, memory: Memory) -> Placement:
    """Return how many slots each layer gets; see `place_experts`.

    A draft layer that nobody will ask gets one slot, which never takes memory.

    Raises:
        InsufficientMemory: one expert of each layer does not fit beside the rest.
    """
    counts = model.routing_counts
    num_rows = 0 if counts is None else len(counts)
    used = [layer for layer in store.mixtures[:num_rows] if layer is not None]
    if config.drafts.source != "off":
        used = store.layers
    records = {layer.records.prefix: layer.records for layer in used}
    layers = _streamed(records, model.config.num_experts_per_token)
    width, hidden_size = _sizes(next(iter(records.values())))
    shape = StepShape(
        hidden_size, width, model.config.vocab_size, _position_bytes(model, config.kv_dtype)
    )
    needs = needs_of(model.resident_bytes, shape, layers.per_token, config)
    budget = MemoryBudget.of(memory, config.memory.ram_bytes)
    limits = config.memory
    found = place(budget, needs, layers, limits.cap, may_raise=limits.may_raise)
    capacities = dict(zip(records, found.capacities, strict=True))
    return replace(
        found,
        capacities=tuple(capacities.get(layer.records.prefix, 1) for layer in store.layers),
        slot_bytes=tuple(layer.records.nbytes for layer in store.layers),
    )


def usage_file(config: EngineConfig, sizes: ModelConfig) -> UsageFile | None:
    """Return where the history of a model is kept; None: nowhere."""
    options = config.memory.history
    if not options.is_saved:
        return None
    path = options.path
    if path is None:
        path = _usage_home(config.model_path, config.state_dir) / USAGE_NAME
    return UsageFile(path, (sizes.num_layers, sizes.num_experts), sizes.model_type, options.decay)


def _usage_home(model_path: Path, state_dir: Path) -> Path:
    """Return the model's directory, or another one of its own where that cannot be written."""
    if os.access(model_path, os.W_OK):
        return model_path
    digest = hashlib.sha256(str(model_path.resolve()).encode()).hexdigest()[:16]
    home = state_dir / "usage" / f"{model_path.name}-{digest}"
    make_own(home)
    return home


def check_memory(
    checkpoint: Checkpoint, weight_bytes: int, config: MemoryConfig, memory: Memory
) -> None:
    """Refuse weights that must all be in memory and cannot, before they push all else out.

    Args:
        checkpoint: Their files.
        weight_bytes: What they take in memory; some formats take twice what they do in files.
        config: What memory was asked for.
        memory: What there is.

    Raises:
        InsufficientMemory: Naming what is needed, what is there and what limits it.
    """
    needed = weight_bytes + PROCESS_BYTES
    there = memory.available
    where = f"the machine has {gb(memory.total)}"
    remedy = "close other programs"
    if memory.limit is not None:
        where = f"limited by {memory.limit[0]} to {gb(memory.limit[1])}"
        remedy = "raise that limit"
    if config.ram_bytes is not None and config.ram_bytes < there:
        there, where, remedy = config.ram_bytes, "set by --ram", "raise --ram"
    if needed <= there:
        return
    if any(".experts." in name for name in checkpoint.names()):
        remedy += f", or convert the model ({_CONVERT})"
    else:
        remedy += ", or take a smaller model or one with fewer bits per weight"
    on_disk = checkpoint.nbytes
    grown = f" ({gb(on_disk)} in files)" if weight_bytes > _GROWN * on_disk else ""
    refusal = InsufficientMemory(
        f"the weights need {gb(needed)} of memory{grown}, {gb(there)} are available ({where})",
        hint=remedy,
    )
    refusal.needed_bytes = needed
    raise refusal


def _records(checkpoint: Checkpoint) -> RecordTable:
    if isinstance(checkpoint, StreamedCheckpoint):
        return RecordTable.of(checkpoint.stored_experts())
    return RecordTable((), {})


def _streamed(records: Mapping[str, LayerRecords], per_token: int) -> StreamedLayers:
    sizes = [layer.nbytes for layer in records.values()]
    num_experts = max(len(layer.places) for layer in records.values())
    return StreamedLayers(sizes, num_experts, per_token)


def _sizes(records: LayerRecords) -> tuple[int, int]:
    """Return width and inputs of the experts."""
    layout = records.record.parts[PARTS[0]].layout
    return layout.num_outputs, layout.num_inputs


def _position_bytes(model: Model, kv_dtype: str) -> int:
    """Return what a conversation takes for each position, in the draft layer's cache too."""
    return bytes_per_position(make_cache(model, kv_dtype)) + _draft_bytes(model, kv_dtype)


def draft_position_bytes(model: Model, config: EngineConfig) -> int:
    """Return what a conversation takes in the draft layer's cache for each position."""
    return _draft_bytes(model, config.kv_dtype) if config.drafts.source != "off" else 0


def _draft_bytes(model: Model, kv_dtype: str) -> int:
    if not getattr(model, "can_draft", False):
        return 0
    return bytes_per_position(make_draft_cache(cast("DraftModel", model), kv_dtype))


def bytes_per_position(cache: KvCache) -> int:
    """Return what an empty cache will take for each position."""
    cache.reserve(1)
    return -(-cache.nbytes // cache.capacity)
