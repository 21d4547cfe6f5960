"""Running one offline job of the engine package as a child process.

The job writes lines: a word in capitals and what belongs to it. `ERROR code message` (and `HINT`
before it) become an exception here; every other line goes to the caller.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Final

from colibri_cli.errors import JobFailed
from colibri_cli.plugin_parts import engine_variables
from colibri_cli.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SHOWN_LINES: Final = 3
_MAX_TAIL_BYTES: Final = 4096


def run_job(
    name: str,
    arguments: Sequence[str],
    on_line: Callable[[str, str], None],
    *,
    on_start: Callable[[Callable[[str], None]], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a job to its end.

    Args:
        name: Of the job.
        arguments: Its own.
        on_line: Called with word and rest of each line but errors.
        on_start: For a job that listens: is handed a function that writes it a line.
        environment: Variables besides our own.

    Raises:
        JobFailed: the job ended with an error, with its code, message and hint.
    """
    argv = [sys.executable, "-P", "-m", "colibri_engine.jobs", name, *arguments]
    failure: tuple[str, str] | None = None
    hint: str | None = None
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if on_start is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environment(**engine_variables(), **(environment or {})),
            text=True,
            encoding="utf-8",
            errors="replace",  # names of files may be any bytes
        ) as process,
    ):
        assert process.stdout is not None
        try:
            if on_start is not None:
                on_start(_line_writer(process))
            for line in process.stdout:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == "ERROR":
                    code, _, message = rest.partition(" ")
                    failure = (code, message)
                elif word == "HINT":
                    hint = rest
                else:
                    on_line(word, rest)
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.terminate()
        process.wait()
        if process.returncode != 0:
            code, message = failure or (JobFailed.default_code, _last_words(process, log))
            raise JobFailed(message, code=code, hint=hint)


def _line_writer(process: subprocess.Popen[str]) -> Callable[[str], None]:
    stdin = process.stdin
    assert stdin is not None

    def write(line: str) -> None:
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):  # it ended; its exit code says why
            return

    return write


def _last_words(process: subprocess.Popen[str], log: IO[bytes]) -> str:
    """Describe the end of a job that said nothing itself."""
    size = log.seek(0, 2)
    log.seek(max(0, size - _MAX_TAIL_BYTES))
    lines = log.read().decode(errors="replace").strip().splitlines()[-_SHOWN_LINES:]
    shown = f": {' | '.join(line.strip() for line in lines)}" if lines else ""
    code = process.returncode
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the engine's job {how}{shown}"
