"""Lighthouse scores of the dashboard that `coli serve --model demo` offers, in a headless Chromium.

    scripts/web build && coli pull demo
    python benchmarks/lighthouse.py [PATH ...] [--require]

Lighthouse comes from npm (`npx`, a fixed version) and writes to a directory that is removed. Each
page is loaded once as on a desktop and once as on a slow phone with Lighthouse's own throttling.
A page with a score below its bar is named with the audits that cost it; `--require` exits 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
from tests.e2e.dashboard.conftest import BUNDLE, FLAGS  # noqa: E402
from tests.e2e.test_serve import serving  # noqa: E402
from tests.fakes.command_line import CommandLine  # noqa: E402

PACKAGE = "lighthouse@12.8.2"  # the last that runs on Node.js 20
BARS = {"performance": 0.95, "accessibility": 0.95, "best-practices": 0.95}
FORMS = {"desktop": ["--preset=desktop"], "phone": []}
PAGES = ("/", "/brain", "/atlas", "/profiling", "/settings")
LIMIT_S = 240


def report(url: str, form: str, chromium: str) -> dict[str, dict[str, dict[str, object]]]:
    """Run Lighthouse on one page and return its report."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "report.json")
        command = [
            *("npx", "--yes", PACKAGE, url, "--quiet", "--output=json", f"--output-path={file}"),
            f"--only-categories={','.join(BARS)}",
            f"--chrome-flags={' '.join(FLAGS)}",
            *FORMS[form],
        ]
        # The update check and the error reports of the package talk to other hosts.
        variables = {**os.environ, "CHROME_PATH": chromium, "NO_UPDATE_NOTIFIER": "1"}
        command.append("--no-enable-error-reporting")
        subprocess.run(command, check=True, env=variables, cwd=place, timeout=LIMIT_S)
        found: dict[str, dict[str, dict[str, object]]] = json.loads(file.read_text())
        return found


def costs(found: dict[str, dict[str, dict[str, object]]], category: str) -> list[str]:
    """Name the audits of a category that are not perfect."""
    refs = found["categories"][category]["auditRefs"]
    assert isinstance(refs, list)
    names = [ref["id"] for ref in refs if ref["weight"] > 0]
    audits = found["audits"]
    return [
        f"{name}={score}"
        for name in names
        if isinstance(score := audits[name]["score"], (int, float)) and score < 1
    ]


def main() -> int:
    """Score the pages that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="all pages when left out")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or shutil.which("npx") is None or not (BUNDLE / "index.html").is_file():
        sys.exit("needs chromium, npx with Node.js 20 or newer, and the page (scripts/web build)")
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    are_met = True
    with tempfile.TemporaryDirectory() as home:
        command = CommandLine(Path(home), {"XDG_DATA_HOME": data})
        with serving(command, "--model", "demo") as server:
            server.wait_for("ready")
            print(f"{PACKAGE}\n{'':<24}" + "".join(f"{name:>16}" for name in BARS))
            for path in options.paths or PAGES:
                for form in FORMS:
                    found = report(server.url + path, form, chromium)
                    scores = {name: found["categories"][name]["score"] for name in BARS}
                    cells = "".join(
                        f"{float(str(score)) * 100:>16.0f}" for score in scores.values()
                    )
                    print(f"{path:<12}{form:<12}{cells}", flush=True)
                    for name, score in scores.items():
                        if float(str(score)) < BARS[name]:
                            are_met = False
                            print(f"  {name}: {', '.join(costs(found, name))}", flush=True)
    return int(options.require and not are_met)


if __name__ == "__main__":
    sys.exit(main())
