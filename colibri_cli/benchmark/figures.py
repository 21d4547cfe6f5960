"""The result of `coli bench`: plain data, a table, a chart and a JSON document."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.benchmark.intervals import median_interval
from colibri_cli.terminal.interval_chart import Bar

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND: Final = "bench"
SCHEMA_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One thing measured several times.

    Args:
        kind: "prefill" or "decode".
        tokens: Tokens processed or generated per round, all requests together, give or take one.
        context: Tokens already in the context, as near as words allow.
        batch: Requests at the same time.
        speeds: Tokens per second of each round.
        is_cold: The model was just loaded, and its files had to be read from the disk.
    """

    kind: str
    tokens: int
    context: int
    batch: int
    speeds: tuple[float, ...]
    is_cold: bool = False

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.speeds)

    @property
    def label(self) -> str:
        """What was measured, in few words."""
        return label_of(self.kind, self.tokens, self.context, self.batch, is_cold=self.is_cold)


def label_of(kind: str, tokens: int, context: int, batch: int, *, is_cold: bool) -> str:
    """Return what a row measured, in few words."""
    where = f"{tokens}" if kind == "prefill" else f"at {context}"
    several = f" x{batch}" if batch > 1 else ""
    return f"{kind} {where}{several}{', cold' if is_cold else ''}"


@dataclass(slots=True)
class BenchResult:
    """Everything one `coli bench` found out; times in seconds, empty where not measurable.

    `server` has `url` and `kind` of the server that was measured instead of an engine; `absent`
    names what could not be measured there.
    """

    model: str
    details: Mapping[str, object]
    cpu: str
    cold_loads_s: tuple[float, ...] = ()
    warm_loads_s: tuple[float, ...] = ()
    peak_memory_bytes: int | None = None
    server: Mapping[str, str] | None = None
    absent: tuple[str, ...] = ()
    rows: list[SpeedRow] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        keys = ("family", "numerics", "isa", "num_threads", "file_bytes", "resident_bytes")
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "model": self.model,
            "engine": {key: self.details.get(key) for key in keys},
            "cpu": self.cpu,
            "server": None if self.server is None else dict(self.server),
            "absent": list(self.absent),
            "load": {
                "cold_s": _median(self.cold_loads_s),
                "warm_s": _median(self.warm_loads_s),
                "cold_rounds": list(self.cold_loads_s),
                "warm_rounds": list(self.warm_loads_s),
            },
            "peak_memory_bytes": self.peak_memory_bytes,
            "speed": [_row_document(row) for row in self.rows],
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return the rows of the table: what, tokens, context, batch, median, spread."""
        return [
            (
                f"{row.kind}, cold" if row.is_cold else row.kind,
                str(row.tokens),
                str(row.context),
                str(row.batch),
                f"{row.median:.2f}",
                f"{min(row.speeds):.2f} to {max(row.speeds):.2f}",
            )
            for row in self.rows
        ]

    def charts(self) -> list[tuple[str, list[Bar]]]:
        """Return what the chart shows: prefill and decode apart, for they differ in size."""
        found = []
        for kind in ("prefill", "decode"):
            bars = [
                Bar(row.label, row.median, min(row.speeds), max(row.speeds))
                for row in self.rows
                if row.kind == kind
            ]
            if bars:
                found.append((f"{kind}, tokens/s: median, slowest and fastest round", bars))
        return found

    def summary(self) -> list[str]:
        """Return the lines under the table."""
        if self.server is not None:
            return [
                f"{self.model} on {self.server['url']} ({self.server['kind']}), over HTTP",
                *(f"not measured: {what}" for what in self.absent),
            ]
        cold = _seconds(self.cold_loads_s, "not measured")
        warm = _seconds(self.warm_loads_s, "not measured")
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


def _row_document(row: SpeedRow) -> dict[str, Any]:
    interval = median_interval(row.speeds)
    return {
        "kind": row.kind,
        "state": "cold" if row.is_cold else "warm",
        "tokens": row.tokens,
        "context": row.context,
        "batch": row.batch,
        "tokens_per_second": row.median,
        "interval": None if interval.low is None else [interval.low, interval.high],
        "repeats": list(row.speeds),
    }


def _median(values: tuple[float, ...]) -> float | None:
    return statistics.median(values) if values else None


def _seconds(values: tuple[float, ...], nothing: str) -> str:
    middle = _median(values)
    return nothing if middle is None else f"{middle:.2f} s"
