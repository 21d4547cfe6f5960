"""Figures of an upstream server, read from its `/metrics` page. Pure text in, numbers out.

Counters become rates between two looks. A figure that the server does not give stays None.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import fields
from typing import TYPE_CHECKING

from colibri_cli.supervisor.telemetry import UpstreamFigures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.backends.upstreams.kinds import MetricNames


class MetricsReader:
    """Turns pages into figures.

    Args:
        names: Of the server's kind.
    """

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self._wanted = tuple(
            sorted({name for row in fields(names) for name in getattr(names, row.name)})
        )
        self._before: tuple[float, float | None, float | None] | None = None

    def read(self, page: str, now: float) -> UpstreamFigures | None:
        """Return the figures of a page, or None if it holds none of them.

        Args:
            page: In the Prometheus text format.
            now: Seconds that only grow.
        """
        found = _values(page, self._wanted)
        if not found:
            return None
        values = {name: sum(each) for name, each in found.items()}
        means = {name: values[name] / len(each) for name, each in found.items()}
        names = self._names
        generated, prompt = _first(values, names.generated), _first(values, names.prompt)
        decode_rate, prefill_rate = self._rates(now, generated, prompt)
        running, waiting = _first(values, names.running), _first(values, names.waiting)
        return UpstreamFigures(
            running=None if running is None else round(running),
            waiting=None if waiting is None else round(waiting),
            kv_usage=_first(means, names.kv_usage),
            decode_rate=_first(values, names.decode_rate) if names.decode_rate else decode_rate,
            prefill_rate=prefill_rate,
            hit_ratio=_first(means, names.hit_ratio)
            if names.hit_ratio
            else self._hit_ratio(values),
        )

    def _rates(
        self, now: float, generated: float | None, prompt: float | None
    ) -> tuple[float | None, float | None]:
        before, self._before = self._before, (now, generated, prompt)
        if before is None or now <= before[0]:
            return None, None
        elapsed = now - before[0]
        return _rate(generated, before[1], elapsed), _rate(prompt, before[2], elapsed)

    def _hit_ratio(self, values: Mapping[str, float]) -> float | None:
        names = self._names
        hits, queries = _first(values, names.cache_hits), _first(values, names.cache_queries)
        return hits / queries if hits is not None and queries else None


def _rate(value: float | None, before: float | None, elapsed: float) -> float | None:
    """Return the growth per second; None after a restart, when a counter began anew."""
    if value is None or before is None or value < before:
        return None
    return (value - before) / elapsed


def _first(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((values[name] for name in names if name in values), None)


def _values(page: str, wanted: tuple[str, ...]) -> dict[str, list[float]]:
    """Return the values of each wanted metric, one per label set (parallel ranks, models)."""
    values: dict[str, list[float]] = {}
    for line in page.splitlines():
        if not line.startswith(wanted):  # nearly all of a page of hundreds of lines
            continue
        name, _, rest = line.partition("{")
        if rest:
            rest = rest.rpartition("}")[2]
        else:
            name, _, rest = line.partition(" ")
        words = rest.split()  # a time may follow the value
        if name in wanted and words:
            with contextlib.suppress(ValueError):
                value = float(words[0])
                if math.isfinite(value):  # "NaN" stands for no value yet, and is no JSON
                    values.setdefault(name, []).append(value)
    return values
