"""JSON schemas of the diagnostic answers, for the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}
_TEXT: Final = {"type": "string"}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all these fields."""
    return {"type": "object", "properties": properties, "required": list(properties)}


HEALTH_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["status"],
    "description": "Everything but `status` needs a key where one is configured.",
    "properties": {
        "status": {"enum": ["ok", "loading", "error"]},
        "scheduler": _object(
            active=_INT,
            queued=_INT,
            capacity=_INT,
            max_queue=_INT,
            queue_timeout_seconds=_NUMBER,
            admitted=_INT,
            completed=_INT,
            failed=_INT,
            aborted=_INT,
            rejected=_INT,
            timed_out=_INT,
            cancelled=_INT,
        ),
        "kv_slots": _INT,
        "slots": {
            "type": "array",
            "items": _object(
                slot={"type": ["integer", "null"]},
                request=_TEXT,
                state={"enum": ["prefill", "decode"]},
                prompt_tokens=_INT,
                prefilled_tokens=_INT,
                generated=_INT,
                tokens_per_second=_NUMBER,
                wait_s=_NUMBER,
                age_s=_NUMBER,
            ),
        },
        "model": _TEXT,
        "family": _TEXT,
        "context_length": {"type": ["integer", "null"]},
        "version": _TEXT,
        "uptime_s": _INT,
        "engine": _object(
            state=_TEXT,
            restarts=_INT,
            last_end={"type": ["string", "null"]},
            rss_gb=_NUMBER,
        ),
        "tiers": _object(vram=_INT, ram=_INT, disk=_INT, vram_gb=_NUMBER, ram_gb=_NUMBER),
        "hwinfo": _object(
            cores=_INT,
            ram_total_gb=_NUMBER,
            ram_avail_gb=_NUMBER,
            gpus=_INT,
            vram_total_gb=_NUMBER,
            cpu=_TEXT,
            gpu=_TEXT,
        ),
        "atlas": {"type": "boolean", "description": "Whether `/experts.json` has something."},
    },
}
PROFILE_SCHEMA: Final[Mapping[str, Any]] = _object(
    seq=_INT,
    turns={
        "type": "array",
        "maxItems": 120,
        "items": _object(
            wall_s=_NUMBER,
            expert_disk_s=_NUMBER,
            expert_wait_s=_NUMBER,
            expert_matmul_s=_NUMBER,
            attention_s=_NUMBER,
            lm_head_s=_NUMBER,
            prompt_tokens=_INT,
            completion_tokens=_INT,
            forwards=_INT,
        ),
    },
)
EXPERTS_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["rows", "cols", "map", "hits", "seq"],
    "properties": {
        "rows": _INT,
        "cols": _INT,
        "map": {"type": "string", "description": "One byte per expert: tier * 64 + heat."},
        "hits": {"type": "string", "description": "One bit per expert used since the last."},
        "seq": _INT,
        "layers": {
            "type": "array",
            "items": _INT,
            "description": "Number of the layer that each row is about, counted from 0.",
        },
        "mtp_row": {"type": "integer", "description": "The row of the draft layer, if any."},
        "gpus": {
            "type": "array",
            "items": _object(used_gb=_NUMBER, total_gb=_NUMBER, experts=_INT),
        },
        "entropy": {"type": "array", "items": _NUMBER},
        "repin": {
            "type": "array",
            "maxItems": 256,
            "items": _object(layer=_INT, expert=_INT, old_tier=_INT, gpu=_INT),
        },
    },
}
