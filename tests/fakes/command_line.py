"""Running `coli` as a process of its own, with directories and environment of the test only."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = "import sys; from colibri_cli.main import main; sys.exit(main())"


@dataclass
class CommandLine:
    """`coli` in a private home.

    Args:
        home: Directory for data, settings and history.
        variables: Added to the environment.
    """

    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        """How to start it."""
        return [sys.executable, "-c", START]

    @property
    def environment(self) -> dict[str, str]:
        """A small environment without the settings of whoever runs the tests."""
        roots = [str(ROOT), str(ROOT / "engine"), str(ROOT / "plugins")]
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PYTHONPATH": os.pathsep.join(roots),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLI_KV_SAVE": "0",  # pulled models are everybody's: leave nothing beside them
            **self.variables,
        }

    def run(
        self, *arguments: str, stdin: str | bytes | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; standard input is empty unless given."""
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        done = subprocess.run(
            [*self.argv, *arguments],
            input=data,
            capture_output=True,
            env=self.environment,
            cwd=self.home,
            timeout=timeout_s,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start without waiting; standard input is empty, the outputs are pipes."""
        return subprocess.Popen(
            [*self.argv, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.home,
        )
