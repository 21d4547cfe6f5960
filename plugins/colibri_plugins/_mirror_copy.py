"""Copying files to a second disk so that an interrupted copy is never mistaken for a whole one.

Every file is written beside its place, read back, compared by digest and renamed; the receipt comes
last. Nothing is deleted, and the model itself is only read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from colibri_cli.plugin_api import ColibriError
from colibri_plugins._mirror_plan import header_bytes

RECEIPT = ".colibri-mirror.json"
SCHEMA_VERSION = 1
_CHUNK = 4 << 20
_MAX_RECEIPT = 16 << 20

Tell = Callable[[str, int, int], None]


def stage(files: Sequence[Path], mirror: Path, source: Path, tell: Tell) -> list[dict[str, Any]]:
    """Copy the files that are not there yet, and write the receipt.

    Args:
        files: Of the model.
        mirror: Directory on the other disk; made if absent.
        source: The model's directory, for the receipt.
        tell: Called with a file's name, bytes done and bytes in all.

    Raises:
        ColibriError: a file cannot be copied, or its copy differs.
    """
    try:
        mirror.mkdir(parents=True, exist_ok=True)
        rows = [_copied(file, mirror, tell) for file in files]
        body = {"schema_version": SCHEMA_VERSION, "source": str(source), "files": rows}
        _write(mirror / RECEIPT, (json.dumps(body, indent=1) + "\n").encode())
    except OSError as error:
        raise ColibriError(f"cannot write to {mirror}: {error.strerror}") from error
    return rows


def verify(mirror: Path, roots: Sequence[Path], tell: Tell) -> tuple[list[str], list[str]]:
    """Read every file of the receipt again; return those that are right, and what is wrong.

    Raises:
        ColibriError: there is no receipt, or it is none of ours.
    """
    right, wrong = [], []
    for row in _receipt(mirror):
        name, nbytes, digest = row["name"], row["bytes"], row["sha256"]
        copy = mirror / name
        own = next((root / name for root in roots if (root / name).is_file()), None)
        if not copy.is_file():
            wrong.append(f"{name} is missing")
        elif copy.stat().st_size != nbytes:
            wrong.append(f"{name} has {copy.stat().st_size} bytes, not {nbytes}")
        elif digest_of(copy, tell) != digest:
            wrong.append(f"{name} differs from what was copied")
        elif own is None:
            wrong.append(f"{name} is not in the model any more")
        elif own.stat().st_size != nbytes or header_bytes(own) != header_bytes(copy):
            wrong.append(f"{name} has changed in the model since it was copied")
        else:
            right.append(name)
    return right, wrong


def digest_of(path: Path, tell: Tell) -> str:
    """Return the SHA-256 of a file."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            tell(path.name, done, total)
    return digest.hexdigest()


def _copied(file: Path, mirror: Path, tell: Tell) -> dict[str, Any]:
    target = mirror / file.name
    total = file.stat().st_size
    if target.exists() and target.samefile(file):
        raise ColibriError(f"{target} is the model's own file, no copy can be made of it there")
    wanted = None
    if target.is_file() and target.stat().st_size == total:  # of an earlier attempt
        wanted = digest_of(file, tell)
        if digest_of(target, tell) == wanted:
            return {"name": file.name, "bytes": total, "sha256": wanted}
    temporary = mirror / f".{file.name}.part"
    written = _copy(file, temporary, tell)
    if digest_of(temporary, tell) != written:
        temporary.unlink(missing_ok=True)
        raise ColibriError(
            f"{file.name} came back from {mirror} with other bytes than were written"
        )
    temporary.replace(target)
    return {"name": file.name, "bytes": total, "sha256": written}


def _copy(file: Path, temporary: Path, tell: Tell) -> str:
    digest, done, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as source, temporary.open("wb") as copy:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
            done += len(chunk)
            tell(file.name, done, total)
        copy.flush()
        os.fsync(copy.fileno())
        if hasattr(os, "posix_fadvise"):  # what is read back comes from the disk
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _receipt(mirror: Path) -> list[dict[str, Any]]:
    path = mirror / RECEIPT
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_RECEIPT))
        rows: list[dict[str, Any]] = body["files"]
        names = [str(row["name"]) for row in rows]
        for row in rows:
            int(row["bytes"])
            str(row["sha256"])
    except FileNotFoundError as error:
        raise ColibriError(
            f"there is no receipt in {mirror}", hint="`coli mirror stage` writes one"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ColibriError(f"the receipt {path} cannot be read") from error
    for name in names:
        if name != Path(name).name or name in {"", ".", ".."} or "\\" in name:
            raise ColibriError(f"the receipt {path} names {name!r}, which is no file of the mirror")
    return rows
