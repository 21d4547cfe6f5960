"""Plan a model without reading its weights: `python -m colibri_engine.jobs plan PATH …`.

The settings are those an engine would be started with, SNAP among them. Each `--case` changes some:
a JSON object with `environment` (variables), and what another machine would have: `ram_bytes`,
`memory_bytes_per_s`, `disk_bytes_per_s`. Writes `PLAN {json}`: model, machine, one plan for the
settings as they are and one for each case.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_engine import kernels, machine
from colibri_engine.config import read_config, variables
from colibri_engine.errors import CheckpointError
from colibri_engine.experts.disk_probe import probe_disks
from colibri_engine.experts.disk_speed import Access
from colibri_engine.kernels import ReadEngine
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.machine import Memory
from colibri_engine.memory_plan import usage_file
from colibri_engine.planning.cases import Case, Subject, plan, with_speeds
from colibri_engine.planning.forecast import Machine
from colibri_engine.planning.hits import choices_of, usual_choices
from colibri_engine.planning.measured import MeasuredRates
from colibri_engine.planning.model_sizes import ModelSizes, sizes_of
from colibri_engine.planning.rates import ExpertShape

if TYPE_CHECKING:
    from colibri_engine.engine_config import EngineConfig, ReadConfig
    from colibri_engine.jobs.base import JobOutput
    from colibri_engine.loader.base import Checkpoint

_FLOATS: Final = "f32"  # attention and routers, in every model


def run(argv: list[str], output: JobOutput) -> None:
    """Plan the model that the settings name.

    Raises:
        EngineError: it cannot be planned; the message says why.
    """
    arguments = _parser().parse_args(argv)
    config = read_config(())
    if config.isa is not None:
        kernels.set_isa(config.isa)
    threads = config.num_threads or machine.num_usable_cores()
    kernels.set_num_threads(threads)
    memory = machine.memory()
    with closing(open_checkpoint(config.model_path, config.model_dirs)) as checkpoint:
        sizes = sizes_of(checkpoint, config)
        subject = _subject(checkpoint, sizes, config)
        rates = MeasuredRates(arguments.rates, config.numerics, renew=arguments.measure)
        speeds = _measured(rates, checkpoint, sizes, config)
        rates.save()
        plans = [plan(subject, Case(config, memory, speeds))]
        for text in arguments.case:
            body = json.loads(text)
            case = _case(body, memory, speeds, threads)
            sizes = sizes_of(checkpoint, case.config)
            plans.append(plan(replace(subject, sizes=sizes), case))
    report = {
        "model": _model(config.model_path, subject),
        "machine": _machine(memory, speeds, threads),
        "plans": plans,
    }
    output.say("PLAN", json.dumps(report, ensure_ascii=False, allow_nan=False))


def _subject(checkpoint: Checkpoint, sizes: ModelSizes, config: EngineConfig) -> Subject:
    """Return what is planned for, with its history where there is one."""
    num_experts, per_token = sizes.config.num_experts, sizes.config.num_experts_per_token
    if not sizes.expert_layers:
        return Subject(checkpoint, sizes, None, from_history=False)
    file = usage_file(config, sizes.config)
    try:
        counts = None if file is None else file.read()
    except CheckpointError:  # of another model, or damaged: the engine says so when it starts
        counts = None
    known = None if counts is None else choices_of(counts, per_token)
    usual = usual_choices(num_experts, per_token)
    return Subject(checkpoint, sizes, usual if known is None else known, known is not None)


def _measured(
    rates: MeasuredRates, checkpoint: Checkpoint, sizes: ModelSizes, config: EngineConfig
) -> Machine:
    """Return the rates this model needs, measured where they are not known."""
    kinds = {kind: rates.kind(kind) for kind in sorted({*sizes.token, _FLOATS})}
    experts = disk = None
    if sizes.expert_layers:
        weights: Counter[str] = Counter()
        for kind, amount in sizes.expert_layers[0].kinds.items():
            weights[kind] += amount.num_weights
        shape = ExpertShape(
            weights.most_common(1)[0][0],
            sizes.hidden_size,
            sizes.expert_width,
            sizes.config.num_experts_per_token,
            sizes.config.num_experts,
        )
        experts = rates.experts(shape, config.prefill_chunk)
    if sizes.streams:
        largest = max(checkpoint.weight_files(), key=lambda path: path.stat().st_size)
        record = max(layer.expert_bytes for layer in sizes.expert_layers)
        access = _access(largest, record, config.memory.reads)
        # Reads ahead are open beside those of the layer that is computed.
        depth = sizes.config.num_experts_per_token * (1 + config.memory.looks_ahead)
        disk = rates.disk(largest, record, depth, access)
    return Machine(kinds, experts, rates.call_s(), disk, kernels.num_threads())


def _access(path: Path, record_bytes: int, reads: ReadConfig) -> Access:
    """Return how an engine would read: as it is told, or as measured to be best."""
    is_direct = reads.direct
    if is_direct is None:
        mode = ReadEngine(reads.mode, depth=1, num_threads=1).mode
        choice = probe_disks([path], record_bytes, mode, reads.cache).get(path)
        is_direct = choice is None or choice.access.is_direct
    return Access(reads.mode, is_direct)


def _case(body: dict[str, Any], memory: Memory, speeds: Machine, threads: int) -> Case:
    """Return a case from what was asked."""
    config = read_config((), {**variables(), **body.get("environment", {})})
    ram = body.get("ram_bytes")
    if ram is not None:
        memory = Memory(ram, ram)
        config = replace(config, memory=replace(config.memory, ram_bytes=ram))
    speeds = with_speeds(
        speeds,
        threads=(threads, config.num_threads or threads),
        memory=body.get("memory_bytes_per_s"),
        disk=body.get("disk_bytes_per_s"),
    )
    return Case(config, memory, speeds)


def _model(path: Path, subject: Subject) -> dict[str, Any]:
    sizes = subject.sizes
    records = [layer.expert_bytes for layer in sizes.expert_layers]
    return {
        "path": str(path),
        "family": sizes.config.model_type,
        "shards": len(subject.checkpoint.weight_files()),
        "model_bytes": sizes.file_bytes,
        "dense_bytes": sizes.resident_bytes,
        "layers": sizes.config.num_layers,
        "expert_layers": len(sizes.expert_layers),
        "experts": sizes.config.num_experts,
        "experts_per_token": sizes.config.num_experts_per_token,
        "expert_count": sum(layer.num_experts for layer in sizes.all_expert_layers),
        "expert_bytes": sizes.expert_bytes,
        "typical_expert_bytes": sorted(records)[len(records) // 2] if records else 0,
        "max_expert_bytes": max(records, default=0),
        "expert_bytes_by_layer": {
            str(layer.layer): layer.num_experts * layer.expert_bytes
            for layer in sizes.all_expert_layers
        },
        "per_cap_bytes": sum(layer.expert_bytes for layer in sizes.all_expert_layers),
        "dense": dict(sizes.resident),
        "token_bytes": sum(amount.nbytes for amount in sizes.token.values())
        + sum(sizes.config.num_experts_per_token * nbytes for nbytes in records),
        "position_bytes": sizes.position_bytes,
        "max_positions": sizes.config.max_positions,
        "can_stream": sizes.streams,
    }


def _machine(memory: Memory, speeds: Machine, threads: int) -> dict[str, Any]:
    limit = None
    if memory.limit is not None:
        limit = {"name": memory.limit[0], "bytes": memory.limit[1]}
    disk = None
    if speeds.disk is not None:
        disk = {"bytes_per_s": speeds.disk.bytes_per_s, "latency_s": speeds.disk.latency_s}
    return {
        "cpu": machine.cpu_name(),
        "cores": machine.num_usable_cores(),
        "sockets": machine.num_sockets(),
        "threads": threads,
        "isa": kernels.active_isa(),
        "memory": {
            "total_bytes": memory.total,
            "available_bytes": memory.available,
            "limit": limit,
        },
        "rates": {
            "decode_bytes_per_s": {kind: rate.decode for kind, rate in speeds.kinds.items()},
            "batch_macs_per_s": {kind: rate.batch for kind, rate in speeds.kinds.items()},
            "experts_decode_bytes_per_s": None if speeds.experts is None else speeds.experts.decode,
            "experts_batch_macs_per_s": None if speeds.experts is None else speeds.experts.batch,
            "call_s": speeds.call_s,
        },
        "disk": disk,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="plan")
    parser.add_argument("--rates", type=Path, help="file in which measured rates are kept")
    parser.add_argument("--measure", action="store_true", help="measure what is known, too")
    parser.add_argument("--case", action="append", default=[], metavar="JSON")
    return parser
