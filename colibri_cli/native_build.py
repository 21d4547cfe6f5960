"""The kernels of this installation: which there are, whether they are right, building them anew.

All of it happens in processes of the engine package or of pip; nothing native is loaded here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from colibri_cli.errors import JobFailed, UsageError
from colibri_cli.model_store.engine_job import run_job
from colibri_cli.settings import child_environment

_CHECKOUT: Final = ("pyproject.toml", "CMakeLists.txt", "engine/csrc/dispatch.cpp")
_BUILDERS: Final = ("scikit_build_core", "nanobind", "cmake", "ninja")
_SHOWN_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """The kernels of one instruction set.

    Args:
        name: Of the instruction set.
        runs: This processor has it.
        compared: How many operations were compared with the scalar ones.
        differing: Names of those that did not give the same bits.
        problem: Why they could not be tried.
    """

    name: str
    runs: bool
    compared: int = 0
    differing: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def is_right(self) -> bool | None:
        """Whether all bits were the same; None where the processor cannot run it."""
        return self.problem is None and not self.differing if self.runs else None

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name, "runs": self.runs, "is_right": self.is_right,
            "compared": self.compared, "differing": list(self.differing), "problem": self.problem,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernels:
    """Those of an installation, best first, and which of them is used."""

    cpu: str
    active: str
    variants: tuple[Variant, ...]

    @property
    def are_right(self) -> bool:
        """Whether no variant that this processor runs gave other bits."""
        return all(variant.is_right is not False for variant in self.variants)


def examine() -> Kernels:
    """Return the variants, each tried that this processor runs.

    Raises:
        JobFailed: there are no kernels that can be loaded, or COLI_ISA names others.
    """
    found = _answer("VARIANTS")
    variants = [
        _tried(name) if name in found["available"] else Variant(name, runs=False)
        for name in found["built"]
    ]
    return Kernels(found["cpu"], found["active"], tuple(variants))


def _tried(name: str) -> Variant:
    try:
        found = _answer("RESULT", name)
    except JobFailed as error:  # as where it runs what this processor lacks after all
        return Variant(name, runs=True, problem=error.message)
    return Variant(name, True, found["compared"], tuple(found["differing"]))


def _answer(word: str, *arguments: str) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []

    def take(said: str, text: str) -> None:
        if said == word:
            answers.append(json.loads(text))

    run_job("self-test", arguments, take)
    return answers[0]


def checkout() -> Path:
    """Return the source checkout that this program runs from.

    Raises:
        UsageError: it was installed.
    """
    root = Path(__file__).resolve().parent.parent
    if all((root / name).is_file() for name in _CHECKOUT):
        return root
    raise UsageError(
        "--native builds from a source checkout, and this copy was installed with its kernels",
        hint="`pip install --no-binary colibri-cli --force-reinstall colibri-cli` builds them here",
    )


def rebuild(root: Path, jobs: int | None) -> None:
    """Build the kernels of a checkout with this machine's compiler, and install them.

    Args:
        root: Of the checkout.
        jobs: How many compilers run at once; None leaves that to the build.

    Raises:
        JobFailed: the build failed, with the end of what it said.
    """
    argv = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    if all(map(find_spec, _BUILDERS)):  # those of a checkout for development, without a download
        argv.append("--no-build-isolation")
    limits = {} if jobs is None else {"CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    done = subprocess.run(
        [*argv, "--editable", str(root)],
        env=child_environment(**limits),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()][-_SHOWN_LINES:]
        said = " | ".join(line.strip() for line in lines)
        raise JobFailed(
            f"the kernels of {root} could not be built: {said}",
            hint="`scripts/setup run` in the checkout names what is missing on this machine",
        )
