"""The result of `coli bench`: plain data, a table and a JSON document."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION: Final = 1
_ENGINE: Final = {"kernels": "isa", "threads": "num_threads", "numerics": "numerics"}


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One thing measured several times.

    Args:
        kind: "prefill" or "decode".
        tokens: Tokens processed or generated per repeat, all requests together.
        context: Tokens already in the context.
        batch: Requests at the same time.
        speeds: Tokens per second of each repeat.
    """

    kind: str
    tokens: int
    context: int
    batch: int
    speeds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the repeats."""
        return statistics.median(self.speeds)


@dataclass(slots=True)
class BenchResult:
    """Everything one `coli bench` found out; times in seconds, None where not measurable."""

    model: str
    details: Mapping[str, object]
    cpu: str
    cold_load_s: float | None = None
    warm_load_s: float | None = None
    peak_memory_bytes: int | None = None
    rows: list[SpeedRow] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        keys = ("family", "numerics", "isa", "num_threads", "file_bytes", "resident_bytes")
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "engine": {key: self.details.get(key) for key in keys},
            "cpu": self.cpu,
            "load": {"cold_s": self.cold_load_s, "warm_s": self.warm_load_s},
            "peak_memory_bytes": self.peak_memory_bytes,
            "speed": [
                {
                    "kind": row.kind,
                    "tokens": row.tokens,
                    "context": row.context,
                    "batch": row.batch,
                    "tokens_per_second": row.median,
                    "repeats": list(row.speeds),
                }
                for row in self.rows
            ],
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return the rows of the table: what, tokens, context, batch, median, spread."""
        return [
            (
                row.kind,
                str(row.tokens),
                str(row.context),
                str(row.batch),
                f"{row.median:.2f}",
                f"{min(row.speeds):.2f} to {max(row.speeds):.2f}",
            )
            for row in self.rows
        ]

    def summary(self) -> list[str]:
        """Return the lines under the table."""
        cold = "not measurable here" if self.cold_load_s is None else f"{self.cold_load_s:.2f} s"
        warm = "not measured" if self.warm_load_s is None else f"{self.warm_load_s:.2f} s"
        peak = self.peak_memory_bytes
        memory = "not measurable here" if peak is None else f"{peak / 1e9:.2f} GB"
        engine = ", ".join(
            f"{name} {self.details[key]}"
            for key, name in (
                ("isa", "kernels"),
                ("num_threads", "threads"),
                ("numerics", "numerics"),
            )
            if self.details.get(key)
        )
        return [
            f"load: cold {cold}, warm {warm}; peak memory {memory}",
            f"{self.model}: {engine or 'engine gives no details'}; {self.cpu or 'unknown CPU'}",
        ]
