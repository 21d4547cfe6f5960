"""Runs the checks of a program in a client's own environment and prints how each one ended."""

from __future__ import annotations

import json
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable


def run(checks: Iterable[Callable[[], None]]) -> None:
    """Run all checks, then print one JSON object: name → "ok" or the traceback."""
    chosen = sys.argv[2:]
    results: dict[str, str] = {}
    for check in checks:
        name = check.__name__
        if chosen and name not in chosen:
            continue
        try:
            check()
            results[name] = "ok"
        except Exception:  # noqa: BLE001 - whatever it is belongs into the results
            results[name] = traceback.format_exc()
    print(json.dumps(results))


def until_queued(url: str) -> None:
    """Wait until one request of a server runs and another one waits."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/health") as answer:
                scheduler = json.load(answer)["scheduler"]
        except OSError:
            continue
        if scheduler["active"] >= 1 and scheduler["queued"] >= 1:
            return
        time.sleep(0.05)
    raise AssertionError("nothing waits")
