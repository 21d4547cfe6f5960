"""Every kernel family has its definition, its header and its place in the build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.tree import CSRC, ROOT, files_with, relative

OPS = CSRC / "ops"
ISAS = ("scalar", "avx2", "avx512", "amx", "neon", "i8mm")
VARIANT = re.compile(rf"_({'|'.join(ISAS)})(_[a-z0-9_]+)?$")

# Headers that bring no inline code of their own into a variant's object. The scalar variants are
# compiled for the baseline CPU, so the mathematics header cannot do harm there.
PLAIN_HEADERS = {"cstddef", "cstdint", "immintrin.h", "arm_neon.h"}
SCALAR_HEADERS = PLAIN_HEADERS | {"cmath", "cstring", "math.h"}


def isa_of(path: Path) -> str | None:
    found = VARIANT.search(path.stem)
    return found[1] if found else None


def families() -> dict[str, list[Path]]:
    """Return the folders that have variants, with their sources."""
    found: dict[str, list[Path]] = {}
    for path in files_with(".cpp", under=OPS):
        if isa_of(path):
            found.setdefault(path.parent.name, []).append(path)
    return found


def variants() -> list[Path]:
    return [path for sources in families().values() for path in sources]


def includes(path: Path, seen: set[Path]) -> set[str]:
    """Return the system headers that a source reaches through ours."""
    if path in seen:
        return set()
    seen.add(path)
    text = path.read_text(encoding="utf-8")
    system = set(re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE))
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE):
        system |= includes(CSRC / name, seen)
    return system


def test_there_are_families() -> None:
    assert "matmul_int" in families()


@pytest.mark.parametrize("family", sorted(families()))
def test_a_family_has_its_header_and_its_scalar_definition(family: str) -> None:
    assert (OPS / family / f"{family}.h").is_file()
    assert (OPS / family / f"{family}_scalar.cpp").is_file()


@pytest.mark.parametrize("family", sorted(families()))
def test_a_family_has_a_native_test(family: str) -> None:
    native = files_with(".cpp", ".h", under=ROOT / "tests" / "native")
    assert any(f'"ops/{family}/{family}.h"' in path.read_text("utf-8") for path in native)


@pytest.mark.parametrize("path", variants(), ids=lambda path: path.stem)
def test_a_variant_includes_only_plain_headers(path: Path) -> None:
    allowed = SCALAR_HEADERS if isa_of(path) == "scalar" else PLAIN_HEADERS
    foreign = includes(path, set()) - allowed
    assert not foreign, f"{relative(path)} reaches {foreign}: inline code for one CPU would leak"


def test_every_op_has_its_line_in_the_build() -> None:
    # Which files the line must name, CMake itself checks.
    build = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^coli_op\((\w+)\s", build, re.MULTILINE)
    assert listed == sorted({path.parent.name for path in files_with(".cpp", under=OPS)})


def test_nanobind_is_met_only_in_the_bindings() -> None:
    strays = [
        relative(path)
        for path in files_with(".cpp", ".h", under=CSRC)
        if not path.is_relative_to(CSRC / "bindings")
        and "nanobind" in path.read_text(encoding="utf-8")
    ]
    assert not strays
