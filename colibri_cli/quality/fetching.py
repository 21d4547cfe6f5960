"""Fetching public data sets of tasks, once, from the rows API of a dataset viewer.

The only part of `coli bench` that asks the network: one host, named by a setting, and only for a
task that was asked for and is not here. A file is written when all of it has come, never before.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import UsageError
from colibri_cli.quality.datasets import DATASETS
from colibri_cli.quality.tasks import is_question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from colibri_cli.quality.datasets import Dataset, Source

LEAST_ROWS: Final = 200  # so that a later run with a few more questions need not ask again
_PAGE: Final = 100  # most rows of one answer
_MAX_BODY: Final = 32 * 1024 * 1024
_TIMEOUT_S: Final = 30.0
_ATTEMPTS: Final = 5
_FIRST_WAIT_S: Final = 1.0  # doubled each time
_MAX_WAIT_S: Final = 60.0  # of what a server asks for; who asks for more does not want us today
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})


class FetchError(Exception):
    """A data set cannot be had; the text says why."""


class HostUnreachable(FetchError):
    """Nobody can be reached there, so it is useless to ask for the next one."""


class _Passing(Exception):
    """A failure that another attempt may not meet."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Viewer:
    """Where rows are asked for.

    Args:
        client: Sends requests.
        url: Beginning of all addresses.
        sleep: Waits for so many seconds.
    """

    client: httpx.Client
    url: httpx.URL
    sleep: Callable[[float], None]

    @property
    def host(self) -> str:
        """Whom it asks, as a user should read it."""
        return self.url.netloc.decode("ascii")

    def page(self, source: Source, offset: int, length: int) -> tuple[list[Any], int]:
        """Return rows from an offset on, and how many there are in all.

        Raises:
            FetchError: it was refused, or failed again and again.
        """
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._page(source, offset, length)
            except _Passing as failure:
                asked_s = failure.wait_s or 0.0
                if attempt == _ATTEMPTS or asked_s > _MAX_WAIT_S:
                    later = f", and asks to wait {asked_s:.0f} s" if asked_s > _MAX_WAIT_S else ""
                    raise FetchError(f"{failure}{later}") from failure
                self.sleep(max(wait_s, asked_s))
                wait_s *= 2
        raise AssertionError("the last attempt returns or raises")

    def _page(self, source: Source, offset: int, length: int) -> tuple[list[Any], int]:
        import httpx

        query = {
            "dataset": source.dataset, "config": source.config, "split": source.split,
            "offset": str(offset), "length": str(length),
        }  # fmt: skip
        url = self.url.copy_with(path=f"{self.url.path.rstrip('/')}/rows")
        try:
            with self.client.stream("GET", url, params=query) as response:
                self._check(response)
                body = b""
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > _MAX_BODY:
                        raise FetchError(f"{self.host} sent more than {_MAX_BODY >> 20} MB at once")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise HostUnreachable(f"{self.host} cannot be reached ({_reason(error)})") from error
        except httpx.TransportError as error:
            reason = f"the connection to {self.host} was lost ({_reason(error)})"
            raise _Passing(reason) from error
        except httpx.HTTPError as error:
            raise FetchError(f"{self.host} sent no answer of HTTP ({_reason(error)})") from error
        return self._rows(body)

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in _PASSING:
            wait_s = _wait_of(response.headers.get("retry-after", ""))
            raise _Passing(f"{self.host} answered with HTTP {status}", wait_s)
        if status != 200:  # a redirection too
            raise FetchError(f"{self.host} answered with HTTP {status}")

    def _rows(self, body: bytes) -> tuple[list[Any], int]:
        try:
            answer = json.loads(body)
            rows, total = [entry["row"] for entry in answer["rows"]], answer["num_rows_total"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FetchError(f"{self.host} answered with something else than rows") from error
        if not isinstance(total, int) or total < len(rows):
            raise FetchError(f"{self.host} answered with something else than rows")
        return rows, total


@contextmanager
def open_viewer(url: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[Viewer]:
    """Ask the viewer at an address, for as long as the block runs.

    Raises:
        UsageError: it is none of a server.
    """
    import httpx

    parsed = _address(url)
    # A redirection would lead to a host that nobody named.
    with httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False) as client:
        yield Viewer(client, parsed, sleep)


def _address(url: str) -> httpx.URL:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise UsageError(
            "datasets_url is no address of a server",
            hint="set COLI_DATASETS_URL to one such as https://datasets-server.huggingface.co",
        )
    return parsed


def fetch_task(
    viewer: Viewer, name: str, path: Path, limit: int, tell: Callable[[int, int], None]
) -> int:
    """Fetch the questions of a task into a file and return how many they are.

    Args:
        viewer: Whom to ask.
        name: One of DATASETS.
        path: The file, which is not there or is replaced.
        limit: Questions that are wanted; at least LEAST_ROWS are fetched.
        tell: Called with the rows that have come and those that will.

    Raises:
        FetchError: it cannot be had; nothing is written.
    """
    from colibri_cli.whole_files import write_whole

    dataset = DATASETS[name]
    rows = _first_answer(viewer, dataset, max(limit, LEAST_ROWS), tell)
    questions = list(_questions(dataset, rows))
    if not questions:
        raise FetchError(f"{viewer.host} has rows of another form")
    lines = [json.dumps(question, ensure_ascii=False) + "\n" for question in questions]
    try:
        write_whole(path, "".join(lines))
    except OSError as error:
        raise FetchError(f"{path} cannot be written ({error.strerror})") from error
    except UnicodeEncodeError as error:  # half a surrogate pair in the answer
        raise FetchError(f"{viewer.host} sent text that is none") from error
    return len(questions)


def _first_answer(
    viewer: Viewer, dataset: Dataset, wanted: int, tell: Callable[[int, int], None]
) -> list[Any]:
    *others, last = dataset.sources
    for source in others:
        try:
            return _all_rows(viewer, source, dataset, wanted, tell)
        except HostUnreachable:
            raise
        except FetchError:  # the next place may have it
            continue
    return _all_rows(viewer, last, dataset, wanted, tell)


def _all_rows(
    viewer: Viewer,
    source: Source,
    dataset: Dataset,
    wanted: int,
    tell: Callable[[int, int], None],
) -> list[Any]:
    num_parts = max(dataset.num_parts, -(-wanted // _PAGE))
    length = -(-wanted // num_parts)
    rows, total = viewer.page(source, 0, length)
    goal = min(wanted, total)
    tell(len(rows), goal)
    for offset, size in _places(total, wanted, num_parts)[1:]:
        found, _ = viewer.page(source, offset, size)
        rows += found
        tell(len(rows), goal)
    return rows[:goal]


def _places(total: int, wanted: int, num_parts: int) -> list[tuple[int, int]]:
    """Return where pages begin and how long each is: evenly spread, or all one after the other."""
    length = -(-wanted // num_parts)
    if total <= length * num_parts:
        first = [(0, min(length, total))]
        return first + [(at, min(_PAGE, total - at)) for at in range(length, total, _PAGE)]
    return [(part * total // num_parts, length) for part in range(num_parts)]


def _questions(dataset: Dataset, rows: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the questions of rows; one without an answer, as hidden tests have, is none."""
    for row in rows:
        try:
            question = dataset.question(row)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            continue
        if is_question(question):
            yield question


def _wait_of(text: str) -> float | None:
    """Return the seconds that a field Retry-After names, as a number or as a date."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
