"""GET /metrics: counters and histograms for Prometheus."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.http_types import Response, Route
from colibri_cli.gateway.metrics_text import CONTENT_TYPE, MetricsText
from colibri_cli.gateway.openapi import operation

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services

_STATUS_PREFIX = "status_"
_UPSTREAM = {
    "running": "Requests that run on the server behind.",
    "waiting": "Requests that wait there.",
    "kv_usage": "Share of its KV cache in use.",
    "decode_rate": "Tokens it generates per second.",
    "prefill_rate": "Prompt tokens it takes per second.",
    "hit_ratio": "Share of prompt tokens found in its prefix cache.",
}


async def get_metrics(services: Services, request: Request) -> AnyResponse:
    """Return the page."""
    del request
    page = MetricsText()
    _scheduler(page, services)
    _keys(page, services)
    _turns(page, services)
    await _engine(page, services)
    _http(page, services)
    return Response(200, page.text.encode(), CONTENT_TYPE, {"Cache-Control": "no-store"})


def _scheduler(page: MetricsText, services: Services) -> None:
    scheduler = services.scheduler
    page.gauge("slots", "Requests that can run at once.", scheduler.capacity)
    page.gauge("slots_active", "Requests that run.", scheduler.active)
    page.gauge("queue_depth", "Requests that wait.", scheduler.queued)
    page.gauge("queue_limit", "Requests that may wait.", scheduler.max_queue)
    counts: dict[str, Any] = asdict(scheduler.counters)
    page.counter("requests_admitted_total", "Requests that got a slot.", counts.pop("admitted"))
    page.family("requests_total", "Requests by how they ended.", "counter", counts, "outcome")


def _keys(page: MetricsText, services: Services) -> None:
    scheduler = services.scheduler
    usage = scheduler.shares.usage
    if not usage:
        return

    def gauge(name: str, text: str, values: dict[str, int]) -> None:
        page.family(f"key_{name}", text, "gauge", values, "key")

    def counter(name: str, text: str, values: dict[str, float]) -> None:
        page.family(f"key_{name}_total", text, "counter", values, "key")

    gauge("running", "Requests that run, by key.", {n: scheduler.num_running(n) for n in usage})
    gauge("waiting", "Requests that wait, by key.", {n: scheduler.num_waiting(n) for n in usage})
    counter(
        "requests", "Requests that got a slot, by key.", {n: u.admitted for n, u in usage.items()}
    )
    counter("refused", "Requests refused, by key.", {n: u.refused for n, u in usage.items()})
    counter(
        "tokens", "Tokens of prompts and answers, by key.", {n: u.tokens for n, u in usage.items()}
    )
    waits = {name: used.wait_s for name, used in usage.items()}
    counter("queue_wait_seconds", "Time spent waiting, by key.", waits)


def _turns(page: MetricsText, services: Services) -> None:
    turns = services.statistics
    page.histogram("queue_wait_seconds", "Time spent waiting for a slot.", turns.queue_wait_s)
    page.histogram(
        "time_to_first_token_seconds", "From the slot to the first token.", turns.first_token_s
    )
    page.histogram("decode_tokens_per_second", "Speed of single answers.", turns.decode_rate)
    page.histogram(
        "prefill_tokens_per_second", "Speed of reading single prompts.", turns.prefill_rate
    )
    page.counter("prompt_tokens_total", "Tokens of prompts.", turns.prompt_tokens)
    page.counter("reused_tokens_total", "Of those, found in a slot.", turns.reused_tokens)
    page.counter("generated_tokens_total", "Tokens of answers.", turns.completion_tokens)
    page.counter("reasoning_tokens_total", "Of those, reasoning.", turns.reasoning_tokens)


async def _engine(page: MetricsText, services: Services) -> None:
    health = await services.backend.health()
    telemetry = services.backend.telemetry()
    page.gauge("engine_up", "Whether the engine is ready.", health.state == "ready")
    page.counter("engine_crashes_total", "Times the engine ended unasked.", health.num_crashes)
    page.gauge("engine_resident_bytes", "Memory of the engine.", telemetry.rss_gb * 1e9)
    page.gauge(
        "expert_hit_ratio", "Experts found in memory, last answer.", telemetry.hit_percent / 100
    )
    if telemetry.upstream is not None:
        for name, value in asdict(telemetry.upstream).items():
            if value is not None:
                page.gauge(f"upstream_{name}", _UPSTREAM[name], value)
    if (tiers := telemetry.tiers) is not None:
        counts = {"vram": tiers.vram, "ram": tiers.ram, "disk": tiers.disk}
        page.family("experts", "Experts per tier.", "gauge", counts, "tier")
        sizes = {"vram": tiers.vram_gb * 1e9, "ram": tiers.ram_gb * 1e9}
        page.family("expert_bytes", "Bytes of experts per tier.", "gauge", sizes, "tier")


def _http(page: MetricsText, services: Services) -> None:
    statuses = {
        name.removeprefix(_STATUS_PREFIX): count
        for name, count in services.counters.items()
        if name.startswith(_STATUS_PREFIX)
    }
    page.family("http_responses_total", "Answers by status.", "counter", statuses, "code")
    for name, count in services.counters.items():
        if not name.startswith(_STATUS_PREFIX):
            page.gauge(f"http_{name}", f"{name.replace('_', ' ').capitalize()}.", count)


ROUTES = (
    Route(
        "GET",
        "/metrics",
        get_metrics,
        operation=operation(
            "get_metrics",
            "Return counters and histograms for Prometheus.",
            answer={"text/plain": {"type": "string"}},
        ),
    ),
)
