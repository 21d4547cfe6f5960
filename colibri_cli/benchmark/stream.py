"""`coli bench stream`: the engine's job that measures reads of experts, its figures as a table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.model_store.engine_job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_protocol.settings import ResolvedSettings

COLUMNS: Final = (
    ("budget", True), ("slots", True), ("phase", False), ("tokens/s", True), ("hits", True),
    ("MB/token", True), ("hidden", True), ("of disk", True), ("disk GB/s", True), ("memory", True),
)  # fmt: skip
_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What is measured.

    Args:
        path: The model.
        budgets: GB of memory, one run each.
        prompt: Tokens of the prompt.
        tokens: Tokens of each of the two phases of decoding.
    """

    path: Path
    budgets: tuple[float, ...]
    prompt: int
    tokens: int


@dataclass(slots=True)
class StreamResult:
    """What was measured, as the job said it."""

    model: dict[str, Any] = field(default_factory=dict)
    phases: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `--json`."""
        return {"schema_version": _SCHEMA_VERSION, "model": self.model, "phases": self.phases}

    def table(self) -> list[list[str]]:
        """Return the rows: one per budget and phase."""
        return [
            [
                f"{phase['ram_bytes'] / 1e9:.2f} GB",
                str(phase["slots"]),
                phase["phase"],
                f"{phase['tokens_per_s']:.2f}",
                f"{phase['hit_percent']:.1f} %",
                f"{phase['bytes_per_token'] / 1e6:.1f}",
                f"{phase['hidden_percent']:.0f} %",
                f"{phase['disk_percent']:.0f} %",
                f"{phase['disk_bytes_per_s'] / 1e9:.2f}",
                f"{phase['rss_bytes'] / 1e9:.2f} GB",
            ]
            for phase in self.phases
        ]

    def summary(self) -> list[str]:
        """Return the lines below the table."""
        model = self.model
        legend = (
            "hidden: of the disk's time, what nobody waited for; of disk: bytes missed, over "
            "the time without attention and head, against that rate"
        )
        way = f"{model['read_mode']}, {'direct' if model['is_direct'] else 'buffered'}"
        experts = (
            f"{model['num_layers']} layers of {model['num_experts']} experts of "
            f"{model['record_bytes'] / 1e6:.2f} MB, {model['num_experts_per_token']} per token; "
            f"{model['num_threads']} threads"
        )
        return [
            experts,
            f"reads: {way}; disk: as many such reads at a time as a token needs, alone",
            legend,
        ]


def measure_stream(
    plan: StreamPlan, settings: ResolvedSettings, on_progress: Callable[[int, int], None]
) -> StreamResult:
    """Run the job.

    Raises:
        JobFailed: it failed; code, message and hint are the engine's.
    """
    result = StreamResult()

    def on_line(word: str, rest: str) -> None:
        if word == "PROGRESS":
            done, total = rest.split(" ")
            on_progress(int(done), int(total))
        elif word == "MODEL":
            result.model = json.loads(rest)
        elif word == "PHASE":
            result.phases.append(json.loads(rest))

    arguments = [
        f"--budgets={','.join(f'{budget:g}' for budget in plan.budgets)}",
        f"--prompt={plan.prompt}",
        f"--tokens={plan.tokens}",
    ]
    environment = {"COLI_DRAFT": "off", **settings.engine_environment(), "SNAP": str(plan.path)}
    run_job("stream-bench", arguments, on_line, environment=environment)
    return result
