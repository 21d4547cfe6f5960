"""Offline work of the engine package: `python -m colibri_engine.jobs NAME …`.

A job writes progress on standard output, one line `PROGRESS <done> <total>` at a time, and ends
with exit code 0; an error is one line `ERROR <code> <message>` there and a non-zero code, before
it `HINT <remedy>` where there is one. Some jobs write further lines, each begun by another word.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import EXIT_FAILURE, EXIT_SETTINGS, ColibriError, exit_code, reason_of
from colibri_engine.extensions import extend
from colibri_engine.jobs.base import JobOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

JOBS: Final = {
    "build-demo": "build_demo",
    "convert": "convert",
    "disk-bench": "disk_bench",
    "fixture": "fixture",
    "inspect": "inspect",
    "plan": "plan",
    "self-test": "self_test",
    "stream-bench": "stream_bench",
}


def main(argv: Sequence[str]) -> int:
    """Run one job.

    Args:
        argv: Name of the job and its own arguments.

    Returns:
        The exit code of the process.
    """
    name = argv[0] if argv else ""
    output = JobOutput()
    if name not in JOBS:
        output.say(
            "ERROR", f"usage_error there is no job {name!r}; known: {', '.join(sorted(JOBS))}"
        )
        return EXIT_SETTINGS
    module = import_module(f"colibri_engine.jobs.{JOBS[name]}")
    try:
        extend()
        module.run(list(argv[1:]), output)
    except ColibriError as error:
        if error.hint:
            output.say("HINT", error.hint)
        output.say("ERROR", f"{error.code} {error.message}")
        return exit_code(error)
    except OSError as error:
        output.say("ERROR", f"os_error {reason_of(error)}")
        return EXIT_FAILURE
    return 0
