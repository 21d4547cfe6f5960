"""`coli ps`: the servers that run."""

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import api_key, prepare
from colibri_cli.wrapping import say
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from colibri_cli.servers import RunningServer

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PsOptions(JsonOptions, OutputOptions):
    """Options of `coli ps`."""


@takes(PsOptions)
def command(options: PsOptions) -> None:
    """List running servers: process, address, model, state, slots."""
    prepare(options, "ps")
    from colibri_cli.servers import running_servers

    rows = [_row(server) for server in running_servers()]
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "servers": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not rows:
        say("no server runs; `coli serve` starts one")
        return
    from colibri_cli.console import print_table

    columns = [("pid", True), ("url", False), ("model", False), ("state", False)]
    columns += [("slots", False), ("memory", True), ("up", True)]
    print_table(columns, [_cells(row) for row in rows])


def _row(server: "RunningServer") -> dict[str, Any]:
    from colibri_cli.servers import ask

    row: dict[str, Any] = {
        "pid": server.pid,
        "url": server.url,
        "port": server.port,
        "model": server.model,
        "uptime_s": max(0, round(time.time() - server.started)),
        "state": "unreachable",
        "slots_active": None,
        "slots": None,
        "queued": None,
        "rss_gb": None,
    }
    if server.port is None:
        return {**row, "state": "on a socket"}
    try:
        health = ask(server.url, "/health", api_key())
    except ColibriError:
        return row
    scheduler = health.get("scheduler") or {}
    return {
        **row,
        # What another server serves is known only when that one was asked.
        "model": health.get("model") or server.model,
        "state": str(health.get("status", "unknown")),
        "slots_active": scheduler.get("active"),
        "slots": scheduler.get("capacity"),
        "queued": scheduler.get("queued"),
        # 0 where the engine is another server's: nobody tells.
        "rss_gb": (health.get("engine") or {}).get("rss_gb") or None,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from colibri_cli.terminal.durations import duration

    slots = "-" if row["slots"] is None else f"{row['slots_active']} of {row['slots']}"
    memory = "-" if row["rss_gb"] is None else f"{row['rss_gb']:.1f} GB"
    up = duration(row["uptime_s"])
    return (str(row["pid"]), row["url"], row["model"], row["state"], slots, memory, up)
