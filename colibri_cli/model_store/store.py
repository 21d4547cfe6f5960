"""The user's models: one directory each, described by a small `model.json`.

    <data>/models/<name>/model.json      what it is and which file or directory to load
    <data>/models/<name>/…               its files, unless it was added from elsewhere

A model appears here whole or not at all: files are made beside it and renamed at the end. Weight
files are never opened.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.errors import ModelNotFound, StoreError
from colibri_cli.whole_files import SHOWN, make_own

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST: Final = "model.json"
MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_GGUF_ENDING: Final = re.compile(r"(-[0-9]{5}-of-[0-9]{5})?\.gguf$")  # of a file, or of one part
_SCHEMA_VERSION: Final = 1
_MAX_MANIFEST_BYTES: Final = 1024 * 1024
_MAX_SHOWN: Final = 80  # characters of a name in an error


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of the store.

    Args:
        name: Name to load it by.
        family: Its architecture (`model_type`).
        target: What the engine loads, relative to the model's directory ("." for all of it); an
            absolute path for one that only has its name here.
        source: Where it came from ("demo", "hf:ORG/NAME", "added").
        num_bytes: Size of its files.
        num_experts: Routed experts per layer; 0 for a dense model, None if unknown.
        license: Short name of its licence, "" if unknown.
    """

    name: str
    family: str
    target: str
    source: str
    num_bytes: int
    num_experts: int | None = None
    license: str = ""

    @property
    def path(self) -> Path:
        """What the engine loads."""
        return paths.models_dir() / self.name / self.target

    @property
    def is_managed(self) -> bool:
        """Whether its files are the store's own."""
        return not Path(self.target).is_absolute()


def find_model(name: str) -> StoredModel | None:
    """Return a model of the store by name, or None."""
    model = find_entry(name)
    return model if model is not None and model.path.exists() else None


def find_entry(name: str) -> StoredModel | None:
    """Return a model of the store by name, also where its files are away; None for no such name."""
    return _read_manifest(paths.models_dir() / name) if MODEL_NAME.fullmatch(name) else None


def list_models() -> list[StoredModel]:
    """Return all models of the store whose files are there, by name."""
    return [model for model in list_entries() if model.path.exists()]


def list_entries() -> list[StoredModel]:
    """Return all models of the store, by name; half-made or foreign directories are skipped."""
    try:
        directories = sorted(paths.models_dir().iterdir())
    except OSError:
        return []
    found = (_read_manifest(directory) for directory in directories)
    return [model for model in found if model is not None]


def locate_model(wanted: str) -> tuple[Path, str]:
    """Return path and served name of what `--model` names: a path, else a model of the store.

    Raises:
        ModelNotFound: it is neither.
    """
    try:
        resolved = Path(wanted).expanduser().resolve(strict=True)
    except (FileNotFoundError, ValueError):  # ValueError: a character no path has
        pass  # a name, perhaps
    except (OSError, RuntimeError) as error:  # too long, links that lead to each other, ...
        raise ModelNotFound(
            f"{_shortened(wanted)} cannot be looked at: {_reason(error)}",
            hint="set --model or COLI_MODEL to a model directory, a .gguf file or a pulled name",
        ) from error
    else:
        return resolved, _GGUF_ENDING.sub("", resolved.name)
    model = find_model(wanted)
    if model is not None:
        return model.path, model.name
    away = find_entry(wanted)
    if away is not None:
        raise ModelNotFound(
            f"the files of {wanted} are not at {away.path}",
            hint=f"connect their drive, or forget the name: coli rm {wanted}",
        )
    known = ", ".join(model.name for model in list_models()) or "none yet"
    raise ModelNotFound(
        f"there is no model {wanted!r}: neither a path nor a pulled model (pulled: {known})",
        hint="set --model or COLI_MODEL to a model directory, a .gguf file or a pulled name;"
        " `coli pull demo` fetches a small one",
    )


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")


def _reason(error: OSError | RuntimeError) -> str:
    """Return the system's words, or those for what is a RuntimeError instead."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if "home" in str(error):
        return "nobody has that home directory"
    return "its links lead to each other"  # before Python 3.13


@contextmanager
def new_directory(name: str) -> Iterator[Path]:
    """Yield an empty directory that becomes the model's own when the block succeeds.

    The caller holds the lock of that name.

    Raises:
        StoreError: the store cannot be written.
    """
    root = paths.models_dir()
    try:
        make_own(root, SHOWN)
        for stale in root.glob(f".{name}.*.new"):  # left by an attempt that was killed
            remove_tree(stale)
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".new", dir=root))
    except OSError as error:
        raise StoreError(f"cannot write to {root}: {error.strerror}") from error
    try:
        yield temporary
        _replace_directory(temporary, root / name)
    finally:
        remove_tree(temporary)


def adopt_directory(directory: Path, name: str) -> None:
    """Make a finished directory inside the store the model's own.

    Raises:
        StoreError: it cannot be renamed.
    """
    _replace_directory(directory, paths.models_dir() / name)


def write_manifest(directory: Path, model: StoredModel) -> None:
    """Write the description of a model into its directory, safely on disk."""
    body = {"schema_version": _SCHEMA_VERSION, **asdict(model)}
    path = directory / MANIFEST
    with path.open("w", encoding="utf-8") as file:
        json.dump(body, file, indent=2, ensure_ascii=False)
        file.write("\n")
        sync_file(file.fileno())


def sync_file(descriptor: int) -> None:
    """Wait until a file's bytes are on disk."""
    os.fsync(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove a directory of ours if it still exists."""
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def pull_lock(name: str) -> Iterator[None]:
    """Hold the lock of one model's pull.

    Raises:
        StoreError: another process is pulling it.
    """
    with exclusive(paths.models_dir() / f".{name}.lock", f"{name} is being pulled"):
        yield


@contextmanager
def exclusive(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock file; its directory is made if absent.

    Args:
        lock: The file.
        busy: What is going on when another process holds it ("demo is being pulled").

    Raises:
        StoreError: another process holds it.
    """
    try:
        make_own(lock.parent, SHOWN)
        file = lock.open("ab")
    except OSError as error:
        raise StoreError(f"cannot write to {lock.parent}: {error.strerror}") from error
    with file:
        if not _try_lock(file.fileno()):
            raise StoreError(
                f"{busy} by another process", hint="wait for it, then run the command again"
            )
        yield  # closing the file gives the lock back, also when this process is killed


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return _try_lock_windows(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_windows(descriptor: int) -> bool:
    import importlib

    msvcrt: Any = importlib.import_module("msvcrt")
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def _replace_directory(new: Path, final: Path) -> None:
    """Put `new` in the place of `final`; a directory cannot be renamed over a full one."""
    aside = new.with_name(new.name + ".old")
    try:
        new.chmod(0o755)
        if final.exists():
            final.rename(aside)
        new.rename(final)
        _sync_directory(final.parent)
    except OSError as error:
        raise StoreError(f"cannot write {final}: {error.strerror}") from error
    finally:
        remove_tree(aside)


def _sync_directory(directory: Path) -> None:
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:  # not possible on Windows, and not needed there
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _read_manifest(directory: Path) -> StoredModel | None:
    try:
        with (directory / MANIFEST).open("rb") as file:
            body = json.loads(file.read(_MAX_MANIFEST_BYTES))
        experts = body["num_experts"]
        return StoredModel(
            name=directory.name,
            family=str(body["family"]),
            target=str(body["target"]),
            source=str(body["source"]),
            num_bytes=int(body["num_bytes"]),
            num_experts=None if experts is None else int(experts),
            license=str(body.get("license", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
