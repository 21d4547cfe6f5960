"""Starting an engine process: argument list, environment, pipes, process group.

Any program that speaks the line protocol can be the engine (`docs/protocol.md`). It runs in a
process group of its own, so that Ctrl-C in the terminal reaches only us; it ends when its standard
input closes, so it cannot outlive us, however we die. Ours is also told our process id and asks
the kernel to be ended with us, in case it is stuck in native code when that happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import EngineStartError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARENT_ENV: Final = "COLI_PARENT_PID"
_HUB_SECRETS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_SECRETS: Final = ("COLI_API_KEY", "COLI_UPSTREAM_API_KEY", "OPENAI_API_KEY")
_MAX_OPEN_FILES: Final = 65_536
_PIPE_LIMIT: Final = 1024 * 1024
_CONFIG_LIMIT: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """How to start one engine.

    Args:
        model_path: Model directory or GGUF file.
        engine_bin: Program to run instead of our own engine.
        cap: Cache slots per layer, passed on verbatim; None leaves it to the engine's family.
        environment: Settings for the engine, by variable name; they override our environment.
    """

    model_path: Path
    engine_bin: Path | None = None
    cap: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_native(self) -> bool:
        """Whether this starts our own engine."""
        return self.engine_bin is None


def engine_argv(launch: EngineLaunch) -> list[str]:
    """Return the argument list; `-P` keeps the current directory off the module path."""
    if launch.engine_bin is None:
        cap = 0 if launch.cap is None else launch.cap
        return [sys.executable, "-P", "-m", "colibri_engine", str(cap)]
    return [str(launch.engine_bin), str(_foreign_cap(launch))]


def inherited_environment(*, for_hub: bool = False) -> dict[str, str]:
    """Return our environment without secrets; `for_hub`: with those of the hub of models."""
    secrets = _SECRETS if for_hub else (*_SECRETS, *_HUB_SECRETS)
    return {name: value for name, value in os.environ.items() if name not in secrets}


def engine_environment(launch: EngineLaunch) -> dict[str, str]:
    """Return our environment without secrets, plus what the protocol and the settings add."""
    environment = inherited_environment()
    environment.update(
        SNAP=str(launch.model_path),
        SERVE="1",
        SERVE_BATCH="1",
        COLI_CAPS="1",
    )
    environment[PARENT_ENV] = str(os.getpid())
    environment.update(launch.environment)
    return environment


async def spawn_engine(launch: EngineLaunch) -> asyncio.subprocess.Process:
    """Start the process with three pipes.

    Raises:
        EngineStartError: the program does not exist or cannot be run.
    """
    raise_open_file_limit()
    argv = engine_argv(launch)
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=engine_environment(launch),
            limit=_PIPE_LIMIT,
            **own_process_group(),
        )
    except OSError as error:
        raise EngineStartError(
            f"cannot run {argv[0]}: {error.strerror or error}",
            hint="check --engine-bin" if launch.engine_bin else "install coli again",
        ) from error


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files, which children inherit, as far as is allowed."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return


def own_process_group() -> dict[str, Any]:
    """Return how a process is started so that a Ctrl-C at the terminal is ours alone."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def _foreign_cap(launch: EngineLaunch) -> int:
    """Return the cache argument other engines expect when none was chosen."""
    if launch.cap is not None:
        return launch.cap
    return 0 if engine_family(launch.model_path) == "glm" else 8


def engine_family(model_path: Path) -> str:
    """Return the family of a model directory by the `model_type` of its `config.json`."""
    try:
        with (model_path / "config.json").open("rb") as file:
            config = json.loads(file.read(_CONFIG_LIMIT))
        model_type = str(config.get("model_type", "")).lower()
    except (OSError, ValueError, AttributeError):
        return "glm"
    if "deepseek" in model_type and "v4" in model_type:
        return "deepseek_v4"
    for family in ("inkling", "kimi", "olmoe", "qwen3"):
        if family in model_type:
            return family
    return "glm"
