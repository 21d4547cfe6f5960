"""The files of this repository, for tests that hold its rules."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_ROOTS = {
    "colibri_cli": ROOT,
    "colibri_engine": ROOT / "engine",
    "colibri_protocol": ROOT / "engine",
    "colibri_plugins": ROOT / "plugins",
}
CSRC = ROOT / "engine" / "csrc"

# Modules of the folder of number formats that several formats share: bit layouts, tables.
QUANT_PARTS = {
    "bit_pairs",
    "e2m1",
    "e4m3",
    "fp8_blocks",
    "iq4_levels",
    "k_scales",
    "nibbles",
    "rotation",
    "tiles",
    "ue8m0",
}


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that is committed, or would be by `git add`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = (ROOT / name for name in listing.split("\0") if name)
    return tuple(sorted(file for file in files if file.is_file()))


def files_with(*suffixes: str, under: Path = ROOT) -> list[Path]:
    """Return the tracked files below `under` that end in one of `suffixes`."""
    return [f for f in tracked_files() if f.suffix in suffixes and f.is_relative_to(under)]


def package_modules() -> list[Path]:
    """Return the Python modules of our packages (not tests, scripts or benchmarks)."""
    roots = [root / name for name, root in PACKAGE_ROOTS.items()]
    return [f for f in files_with(".py") if any(f.is_relative_to(root) for root in roots)]


def module_name(path: Path) -> str:
    """Return the import name of a module of our packages."""
    for name, root in PACKAGE_ROOTS.items():
        if path.is_relative_to(root / name):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise ValueError(f"{path} is in none of our packages")


def relative(path: Path) -> str:
    """Return the path as it is written in this repository."""
    return path.relative_to(ROOT).as_posix()
