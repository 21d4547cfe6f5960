"""The one way to open a model: a path in, a `Checkpoint` out, or one line saying what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError, unreadable
from colibri_engine.loader.gguf import MAGIC
from colibri_engine.loader.gguf_checkpoint import GgufCheckpoint
from colibri_engine.loader.gguf_parts import first_part
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.loader.json_file import is_there
from colibri_engine.loader.weight_file import WeightFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.loader.base import Checkpoint

_CONFIG: Final = "config.json"


def open_checkpoint(path: Path, further: Sequence[Path] = ()) -> Checkpoint:
    """Open a GGUF file, or a directory with `config.json` and safetensors files.

    A directory without `config.json` that holds one GGUF file, or the parts of one, stands for
    that file. Headers are read and checked; tensors are read when asked for.

    Args:
        path: The file or directory.
        further: Other directories in which some of a directory's safetensors files lie.

    Raises:
        CheckpointError: nothing usable is there.
        UnsupportedModel: the architecture or a feature of it is not implemented.
        UnsupportedQuantFormat: a number format is not implemented.
    """
    try:
        return _open(path, further)
    except OSError as exc:
        raise unreadable(Path(exc.filename or path), exc) from exc


def _open(path: Path, further: Sequence[Path]) -> Checkpoint:
    if path.is_dir() and is_there(path / _CONFIG):
        return HfCheckpoint(path, further=further)
    if further:
        raise CheckpointError(
            f"{path} is no directory with {_CONFIG}: its files cannot lie in several directories",
            path=path,
            hint="leave out COLI_MODEL_DIRS",
        )
    if path.is_dir():
        return _open_directory(path)
    if not path.exists():
        raise CheckpointError(
            f"there is no model at {path}",
            path=path,
            hint="give a .gguf file or a model directory, or pull one (coli pull)",
        )
    if not path.is_file():
        raise CheckpointError(
            f"{path} is neither a file nor a directory",
            path=path,
            hint="give a .gguf file or a model directory",
        )
    _check_magic(path)
    return GgufCheckpoint(path)


def _open_directory(path: Path) -> Checkpoint:
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return GgufCheckpoint(files[0])
    if (first := first_part(files)) is not None:
        return GgufCheckpoint(first)
    if files:
        raise CheckpointError(
            f"{path} holds {len(files)} GGUF files: {', '.join(file.name for file in files[:4])}",
            path=path,
            hint="give the path of one of them",
        )
    if any(path.iterdir()):
        raise CheckpointError(
            f"{path} has no config.json and no .gguf file",
            path=path,
            hint="give the directory that holds config.json, or pull the model again",
        )
    raise CheckpointError(f"{path} is empty", path=path, hint="pull the model (coli pull)")


def _check_magic(path: Path) -> None:
    file = WeightFile(path)
    try:
        start = file.read(0, min(4, file.size)).tobytes()
    finally:
        file.close()
    if start == MAGIC:
        return
    hint = "give a .gguf file or a model directory"
    if path.suffix == ".safetensors":
        hint = f"give its directory, {path.parent}"
    what = "is empty" if not start else "is not a GGUF file"
    raise CheckpointError(f"{path} {what}", path=path, hint=hint)
