"""Where a model goes, decided from its headers alone.

The one decision that a start, a plan and the doctor share: what one of them accepts no other
refuses. Knows sizes and settings; reads no weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from colibri_engine.experts.budget import MemoryBudget, Placement, StreamedLayers, gb, place
from colibri_engine.memory_plan import StepShape, check_memory, must_stream, needs_of

if TYPE_CHECKING:
    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.machine import Memory
    from colibri_engine.planning.model_sizes import ModelSizes


class Expected(NamedTuple):
    """Where a model will go.

    Args:
        placement: What the memory is for. Where experts are streamed its layers are those whose
            experts can be; the others' experts count as weights that are always there.
        held: Experts in memory, of every layer that has some.
        streams: Whether experts are read as they are needed.
    """

    placement: Placement
    held: tuple[int, ...]
    streams: bool

    @property
    def excess(self) -> str | None:
        """What to say where everything together, once it is full, is more than the budget."""
        placement = self.placement
        if placement.nbytes <= placement.budget.nbytes:
            return None
        return (
            f"weights, conversations and steps take {gb(placement.nbytes)} when they are full, "
            f"more than the budget of {gb(placement.budget.nbytes)}"
        )


def expected_placement(
    checkpoint: Checkpoint, sizes: ModelSizes, config: EngineConfig, memory: Memory
) -> Expected:
    """Return where everything goes.

    Args:
        checkpoint: The model's files.
        sizes: Its sizes.
        config: Slots, context and what memory was asked for.
        memory: As it is before the weights are read.

    Raises:
        InsufficientMemory: it can neither be held nor streamed; names what is needed, what is
            there and what limits it.
    """
    layers = sizes.all_expert_layers
    shape = step_shape(sizes)
    per_token = sizes.config.num_experts_per_token
    budget = MemoryBudget.of(memory, config.memory.ram_bytes)
    records = [layer.record_bytes for layer in layers if layer.record_bytes is not None]
    if records:
        rest = sum(
            layer.num_experts * layer.expert_bytes for layer in layers if layer.record_bytes is None
        )
        needs = needs_of(sizes.resident_bytes + rest, shape, per_token, config)
        streamed = StreamedLayers(records, sizes.config.num_experts, per_token)
        if must_stream(budget, needs, streamed, config.memory):
            found = place(
                budget, needs, streamed, config.memory.cap, may_raise=config.memory.may_raise
            )
            slots = iter(found.capacities)
            held = [
                layer.num_experts if layer.record_bytes is None else next(slots) for layer in layers
            ]
            return Expected(found, tuple(held), streams=True)
    else:
        weight_bytes = sizes.resident_bytes + sizes.expert_bytes
        check_memory(checkpoint, weight_bytes, config.memory, memory)
    needs = needs_of(sizes.resident_bytes, shape, per_token, config)
    every = tuple(layer.num_experts for layer in layers)
    nbytes = tuple(layer.expert_bytes for layer in layers)
    return Expected(Placement(budget, needs, every, 0, nbytes), every, streams=False)


def step_shape(sizes: ModelSizes) -> StepShape:
    """Return what decides about a model's buffers."""
    return StepShape(
        sizes.hidden_size, sizes.expert_width, sizes.config.vocab_size, sizes.position_bytes
    )
