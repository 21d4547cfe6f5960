"""The built dashboard: where it is, and how it comes to be.

An installed package has it inside; in a source tree it is `web/dist`, made by `scripts/web`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGE: Final = Path(__file__).resolve().parent
_TREE: Final = _PACKAGE.parent
_INDEX: Final = "index.html"
_LAST_LINES: Final = 20


def find_bundle() -> Path | None:
    """Return the folder of the built page, or None."""
    for folder in (_PACKAGE / "web" / "dist", _TREE / "web" / "dist"):
        if (folder / _INDEX).is_file():
            return folder
    return None


def ready_bundle(say: Callable[[str], None]) -> Path:
    """Return the folder of the page, built anew if its sources are here and have changed.

    Raises:
        UsageError: there is none, and none can be built.
    """
    script = _TREE / "scripts" / "web"
    if script.is_file() and (_TREE / "web" / "package.json").is_file():
        _build(script, say)
    bundle = find_bundle()
    if bundle is None:
        raise UsageError(
            "this installation has no dashboard",
            hint="install a wheel that has it (`make wheel`), or use `coli serve`",
        )
    return bundle


def _build(script: Path, say: Callable[[str], None]) -> None:
    has_bundle = find_bundle() is not None
    if shutil.which("npm") is None or shutil.which("bash") is None:
        if not has_bundle:
            raise UsageError(
                "the dashboard is not built, and npm, which builds it, is not installed",
                hint="install Node.js 20.19 or newer with npm, or use `coli serve`",
            )
        return
    if not has_bundle:
        say("building the dashboard, once (a minute)")
    done = subprocess.run(
        ["bash", str(script), "build"], cwd=_TREE, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
    if not has_bundle:
        raise UsageError(
            f"the dashboard could not be built:\n{tail}", hint="`scripts/web build` shows all"
        )
    say(f"the dashboard could not be built anew; the one from before is shown:\n{tail}")
