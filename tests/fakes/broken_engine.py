"""The real engine with one fault put in, as a program: for tests of what notices faults.

`write_broken(directory, fault)` makes a script that runs it with the interpreter of the tests.
"""

from __future__ import annotations

import pkgutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ENGINE = Path(__file__).resolve().parents[2] / "engine"


def replace(place: str, name: str, change: Callable[..., Callable[..., Any]]) -> None:
    """Put `change(right)` in the place of a function of a module or class."""
    owner = pkgutil.resolve_name(place)
    setattr(owner, name, change(getattr(owner, name)))


def rotate_wrongly() -> None:
    """Neighbouring channels turn together where halves should, as if for another family."""
    replace(
        "colibri_engine.layers.rope", "build_rope", lambda right: partial(right, interleaved=True)
    )


def drop_scale() -> None:
    """Attention scores are not divided by the root of the head's size."""

    def change(right: Callable[..., None]) -> Callable[..., None]:
        return lambda *given: right(*given[:4], 1.0, *given[5:])

    replace("colibri_engine.layers.attention", "attention", change)


def slow_down() -> None:
    """Every forward pass takes three times as long."""

    def change(right: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*given: object) -> object:
            began = time.perf_counter()
            result = right(*given)
            time.sleep(2 * (time.perf_counter() - began))
            return result

        return slow

    replace("colibri_engine.models.glm4_moe.Model", "forward", change)


def nothing() -> None:
    """No fault: what this way of starting changes by itself."""


FAULTS: dict[str, Callable[[], None]] = {
    "rope": rotate_wrongly,
    "scale": drop_scale,
    "slow": slow_down,
    "none": nothing,
}


def write_broken(directory: Path, fault: str) -> Path:
    """Write a script into `directory` that runs the engine with a fault."""
    assert fault in FAULTS
    script = directory / f"engine-{fault}"
    here = Path(__file__).resolve()
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{here}' {fault}\n")
    script.chmod(0o755)
    return script


if __name__ == "__main__":
    sys.path.insert(0, str(ENGINE))
    FAULTS[sys.argv.pop()]()
    from colibri_engine.__main__ import main

    main()
