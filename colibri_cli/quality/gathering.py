"""The questions of all tasks that were asked for: those here, and those that are fetched first."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_cli.quality.datasets import DATASETS
from colibri_cli.quality.tasks import load_task
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from colibri_cli.quality.fetching import Viewer
    from colibri_cli.quality.tasks import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """How tasks are gathered.

    Args:
        data: Folder of their files.
        limit: Most questions of each.
        url: Of the server that data sets are fetched from.
        is_offline: Nothing is fetched.
        is_quiet: Only what is left out is told.
    """

    data: Path
    limit: int
    url: str
    is_offline: bool = False
    is_quiet: bool = False

    def tasks(self, names: Sequence[str]) -> dict[str, list[Item]]:
        """Return the questions of each task that can be had; the others are told of.

        Raises:
            UsageError: a file cannot be used, or the address is none.
        """
        found = {name: load_task(name, self.data, self.limit) for name in dict.fromkeys(names)}
        missing = [name for name, items in found.items() if items is None]
        wanted = [name for name in missing if name in DATASETS]
        reasons = {}
        if wanted and self.is_offline:
            reasons = dict.fromkeys(wanted, "nothing is fetched offline, and ")
        elif wanted:
            reasons = self._fetch(wanted)
        for name in wanted:
            if name not in reasons:
                found[name] = load_task(name, self.data, self.limit)
        for name, items in found.items():
            if not items:
                self._tell_missing(name, reasons.get(name, ""))
        return {name: items for name, items in found.items() if items}

    def _fetch(self, names: Sequence[str]) -> dict[str, str]:
        """Fetch what can be fetched, and return why the others could not be."""
        from colibri_cli.quality.fetching import FetchError, HostUnreachable, open_viewer

        reasons: dict[str, str] = {}
        with open_viewer(self.url) as viewer:
            for number, name in enumerate(names):
                try:
                    self._fetch_one(viewer, name)
                except HostUnreachable as error:
                    return reasons | dict.fromkeys(names[number:], f"{error}, and ")
                except FetchError as error:
                    reasons[name] = f"{error}, and "
        return reasons

    def _fetch_one(self, viewer: Viewer, name: str) -> None:
        from colibri_cli.quality.fetching import fetch_task

        has_line = sys.stderr.isatty()

        def tell(done: int, total: int) -> None:
            if has_line and not self.is_quiet:
                end = "\n" if done == total else ""
                sys.stderr.write(f"\rfetching {name}: {done} of {total}{end}")
                sys.stderr.flush()

        if not self.is_quiet:
            say(f"fetching {name} from {viewer.host}, once")
        path = self.data / f"{name}.jsonl"
        number = fetch_task(viewer, name, path, self.limit, tell)
        if not self.is_quiet:
            say(f"{name}: {number} questions are kept in {path}")

    def _tell_missing(self, name: str, reason: str) -> None:
        path = self.data / f"{name}.jsonl"
        say(
            f"coli: the task {name} is left out: {reason}there is no {path}\n"
            "  put a file there, each line an object with ctx, choices and gold"
        )
