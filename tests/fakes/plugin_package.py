"""A plugin of another distribution: a wheel, written here and installed as any is."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = "1.2.3"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def install_plugin(folder: Path, name: str, modules: Mapping[str, str]) -> Path:
    """Install a distribution into a folder of its own and return that.

    Args:
        folder: Where to make both.
        name: Of the distribution and of the plugin.
        modules: Text by name of module; the first is the plugin.
    """
    wheel, site = _write_wheel(folder, name, modules), folder / f"{name}-site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return site


def _write_wheel(folder: Path, name: str, modules: Mapping[str, str]) -> Path:
    info = f"{name}-{VERSION}.dist-info"
    files = {f"{module}.py": text for module, text in modules.items()}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
    files[f"{info}/WHEEL"] = _WHEEL
    files[f"{info}/entry_points.txt"] = f"[colibri.plugins]\n{name} = {next(iter(modules))}\n"
    lines = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
