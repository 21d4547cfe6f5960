"""One plan: what of a model goes where under some settings, and how fast that would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import InsufficientMemory
from colibri_engine.experts.budget import (
    PROCESS_BYTES,
    MemoryBudget,
    Needs,
    Placement,
    StreamedLayers,
    step_bytes,
)
from colibri_engine.memory_plan import StepShape, check_memory, must_stream, share_out
from colibri_engine.planning.forecast import Disk, Experts, Forecast, Machine, Work, decode, prefill
from colibri_engine.planning.hits import distinct_share, hit_rate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from colibri_engine.config import EngineConfig
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.machine import Memory
    from colibri_engine.planning.model_sizes import ModelSizes
    from colibri_engine.planning.rates import Rate

    Choices = npt.NDArray[np.float64]

_POSITIONS: Final = 256  # of the conversation whose next token is estimated


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned for.

    Args:
        checkpoint: Its files.
        sizes: Its sizes.
        choices: (experts,) how often a token chooses each; None for a dense model.
        from_history: Whether that is this model's own history.
    """

    checkpoint: Checkpoint
    sizes: ModelSizes
    choices: Choices | None
    from_history: bool


@dataclass(frozen=True, slots=True)
class Case:
    """Settings and the machine they are for.

    Args:
        config: What the engine would be told.
        memory: What the machine leaves.
        machine: How fast it is.
    """

    config: EngineConfig
    memory: Memory
    machine: Machine


def plan(subject: Subject, case: Case) -> dict[str, Any]:
    """Return the plan as plain data: whether it runs, tiers, times, warnings."""
    warnings: list[str] = []
    try:
        placement = _placement(subject, case)
    except InsufficientMemory as refusal:
        return _refused(subject, case, refusal)
    streams = placement.capacities != _all(subject.sizes)
    if placement.nbytes > placement.budget.nbytes:
        warnings.append(
            f"weights, conversations and steps take {_gb(placement.nbytes)} when they are full, "
            f"more than the budget of {_gb(placement.budget.nbytes)}"
        )
    work = _work(subject, placement, case.config)
    token = decode(work, case.machine, min(_POSITIONS, case.config.context_length))
    rows = next(iter(work.distinct))
    step = prefill(work, case.machine, rows)
    if streams and case.machine.disk is None:
        warnings.append("the disk was not measured: times are without any read")
    return {
        "runs": True,
        "mode": "streamed" if streams else "resident",
        "settings": _settings(case.config),
        "tiers": _tiers(subject.sizes, placement, streams=streams),
        "hit_rate": work.hit_rate,
        "hit_source": _hit_source(subject, streams=streams),
        "decode": _forecast(token),
        "prefill": _forecast(step),
        "bottleneck": token.bottleneck,
        "warnings": warnings,
    }


def with_speeds(
    machine: Machine, *, threads: tuple[int, int], memory: float | None, disk: float | None
) -> Machine:
    """Return what another machine would give.

    Args:
        machine: What was measured.
        threads: Threads it was measured with, and those there would be.
        memory: Bytes per second of its memory; None: as measured.
        disk: Bytes per second of its disk; None: as measured.
    """
    before, after = threads
    if memory is not None or after != before:
        # The best that was seen from memory is what it gives to whoever reads fast enough.
        best = max(rate.decode for rate in machine.kinds.values())
        factor = after / before

        def scaled(rate: Rate) -> Rate:
            limit = best if memory is None else memory
            return rate._replace(decode=min(limit, rate.core * after), batch=rate.batch * factor)

        kinds = {kind: scaled(rate) for kind, rate in machine.kinds.items()}
        experts = None if machine.experts is None else scaled(machine.experts)
        machine = replace(machine, kinds=kinds, experts=experts, num_threads=after)
    if disk is not None:
        latency_s = 0.0 if machine.disk is None else machine.disk.latency_s
        machine = replace(machine, disk=Disk(disk, latency_s))
    return machine


def _placement(subject: Subject, case: Case) -> Placement:
    """Return where everything goes, as an engine would decide it.

    Raises:
        InsufficientMemory: as an engine would.
    """
    sizes, config, memory = subject.sizes, case.config, case.memory
    per_token = sizes.config.num_experts_per_token
    shape = StepShape(
        sizes.hidden_size, sizes.expert_width, sizes.config.vocab_size, sizes.position_bytes
    )
    if sizes.streams:
        if must_stream(sizes.file_bytes, _stored(sizes), config.memory, memory):
            records = [layer.expert_bytes for layer in sizes.all_expert_layers]
            streamed = StreamedLayers(records, sizes.config.num_experts, per_token)
            return share_out(sizes.resident_bytes, shape, streamed, config, memory)
    else:
        check_memory(subject.checkpoint, config.memory, memory)
    needs = Needs(
        sizes.resident_bytes,
        sizes.position_bytes * config.context_length * config.num_slots,
        step_bytes(
            config.step_rows, shape.hidden_size, shape.expert_width, per_token, shape.vocab_size
        ),
    )
    nbytes = tuple(layer.expert_bytes for layer in sizes.all_expert_layers)
    budget = MemoryBudget.of(memory, config.memory.ram_bytes)
    return Placement(budget, needs, _all(sizes), 0, nbytes)


def _stored(sizes: ModelSizes) -> StreamedLayers:
    """Return the layers that could be streamed; before the model is loaded nobody knows more."""
    records = [nbytes for _, nbytes in sizes.stored]
    return StreamedLayers(records, max(number for number, _ in sizes.stored), 1)


def _all(sizes: ModelSizes) -> tuple[int, ...]:
    return tuple(layer.num_experts for layer in sizes.all_expert_layers)


def _work(subject: Subject, placement: Placement, config: EngineConfig) -> Work:
    sizes = subject.sizes
    rows = config.prefill_chunk
    capacities = placement.capacities[: len(sizes.expert_layers)]
    alike = Counter(
        (layer.num_experts, layer.expert_bytes, _num_weights(layer.kinds), capacity)
        for layer, capacity in zip(sizes.expert_layers, capacities, strict=True)
    )
    per_token = sizes.config.num_experts_per_token
    experts = tuple(
        Experts(count, number, per_token, nbytes, weights, capacity)
        for (number, nbytes, weights, capacity), count in alike.items()
    )
    hits, distinct = 1.0, 0.0
    if subject.choices is not None and capacities:
        found = [_hit_rate(subject, capacity) for capacity in capacities]
        hits = sum(found) / len(found)
        distinct = distinct_share(subject.choices, rows)
    head = sizes.head
    return Work(
        num_layers=sizes.config.num_layers,
        token_bytes={kind: amount.nbytes for kind, amount in sizes.token.items()},
        token_weights={
            kind: amount.num_weights - (head[kind].num_weights if kind in head else 0)
            for kind, amount in sizes.token.items()
        },
        position_macs=sizes.position_macs,
        experts=experts,
        hit_rate=hits,
        distinct={rows: distinct},
        looks_ahead=config.memory.looks_ahead,
    )


def _hit_rate(subject: Subject, capacity: int) -> float:
    assert subject.choices is not None
    return _cached_rate(tuple(subject.choices.tolist()), capacity, subject.from_history)


@cache
def _cached_rate(choices: tuple[float, ...], capacity: int, is_known: bool) -> float:
    import numpy as np

    return hit_rate(np.array(choices), capacity, is_known=is_known)


def _num_weights(kinds: Any) -> int:  # noqa: ANN401 - a mapping of amounts
    return sum(amount.num_weights for amount in kinds.values())


def _refused(subject: Subject, case: Case, refusal: InsufficientMemory) -> dict[str, Any]:
    sizes = subject.sizes
    budget = MemoryBudget.of(case.memory, case.config.memory.ram_bytes)
    needed = refusal.needed_bytes or sizes.file_bytes + PROCESS_BYTES
    if sizes.streams and not refusal.needed_bytes:
        stored = _stored(sizes)
        least = stored.row_bytes + 2 * sum(stored.sizes)
        needed = max(0, sizes.file_bytes - stored.nbytes) + PROCESS_BYTES + least
    return {
        "runs": False,
        "mode": "refused",
        "settings": _settings(case.config),
        "budget": {"bytes": budget.nbytes, "source": budget.source},
        "needed_bytes": needed,
        "missing_bytes": max(0, needed - budget.nbytes),
        "reason": refusal.message,
        "hint": refusal.hint,
        "warnings": [],
    }


def _settings(config: EngineConfig) -> dict[str, Any]:
    return {
        "ctx": config.context_length,
        "kv_slots": config.num_slots,
        "prefill_chunk": config.prefill_chunk,
        "cap": config.memory.cap,
        "numerics": config.numerics,
    }


def _tiers(sizes: ModelSizes, placement: Placement, *, streams: bool) -> dict[str, Any]:
    needs = placement.needs
    total = sum(_all(sizes))
    held = sum(placement.capacities)
    return {
        "vram": {"bytes": 0, "experts": 0},
        "ram": {
            "budget_bytes": placement.budget.nbytes,
            "budget_source": placement.budget.source,
            "weights_bytes": needs.resident_bytes,
            "conversations_bytes": needs.kv_bytes,
            "steps_bytes": needs.step_bytes,
            "process_bytes": needs.process_bytes,
            "experts_bytes": placement.cache_bytes,
            "reads_bytes": placement.working_bytes,
            "free_bytes": max(0, placement.budget.nbytes - placement.nbytes),
            "experts": held,
            "slots_per_layer": _range(placement.capacities) if streams else None,
        },
        "disk": {
            "experts": total - held,
            "bytes": max(0, sizes.expert_bytes - placement.cache_bytes),
        },
    }


def _range(capacities: tuple[int, ...]) -> list[int]:
    return [min(capacities), max(capacities)]


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "tokens": forecast.num_tokens,
        "tokens_per_second": forecast.tokens_per_s,
        "seconds": forecast.seconds,
        "terms": {
            "weights_s": forecast.weights_s,
            "experts_s": forecast.experts_s,
            "attention_s": forecast.attention_s,
            "calls_s": forecast.calls_s,
            "read_s": forecast.read_s,
            "hidden_s": forecast.hidden_s,
        },
        "missed_bytes": forecast.missed_bytes,
        "hidden_share": forecast.hidden_share,
    }


def _hit_source(subject: Subject, *, streams: bool) -> str:
    if not streams:
        return "everything is in memory"
    return "history" if subject.from_history else "usual shares"


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB"
