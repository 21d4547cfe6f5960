"""Public data sets: the form of their questions, what is asked for, and what goes wrong there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.errors import UsageError
from colibri_cli.quality.datasets import DATASETS
from colibri_cli.quality.fetching import FetchError, HostUnreachable, fetch_task, open_viewer
from colibri_cli.quality.gathering import Gathering
from colibri_cli.quality.tasks import load_task
from tests.fakes.rows_server import (
    MAX_LENGTH,
    Answer,
    RowsServer,
    body,
    cut_off,
    rows,
    serve_rows,
    silent,
    status,
)


@pytest.fixture
def server() -> Iterator[RowsServer]:
    with serve_rows() as state:
        yield state


class Asking:
    """A viewer whose waits are written down instead of waited."""

    def __init__(self, url: str, data: Path) -> None:
        self.waits: list[float] = []
        self.told: list[tuple[int, int]] = []
        self.data = data
        self.url = url

    def fetch(self, name: str, limit: int = 40) -> list[dict[str, Any]]:
        path = self.data / f"{name}.jsonl"
        with open_viewer(self.url, self.waits.append) as viewer:
            number = fetch_task(viewer, name, path, limit, lambda *n: self.told.append(n))
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len(found) == number
        return found


@pytest.fixture
def asking(server: RowsServer, tmp_path: Path) -> Asking:
    return Asking(server.url, tmp_path)


FIRST = {
    "hellaswag": {
        "ctx": "Roof shingle removal: A man is sitting on roof 0. He",
        "choices": [" is using wrap.", " holds a tool. Wait.", " sleeps.", " ends."],
        "gold": 0,
    },
    "arc_challenge": {
        "ctx": "Question: Which 0?\nAnswer:", "choices": [" a", " b", " c", " d"], "gold": 2
    },
    "arc_easy": {
        "ctx": "Question: Which 0?\nAnswer:", "choices": [" a", " b", " c", " d"], "gold": 2
    },
    "mmlu": {
        "ctx": "The following are multiple choice questions (with answers) about abstract algebra."
        "\n\nFind the degree 0.\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:",
        "choices": [" A", " B", " C", " D"],
        "gold": 0,
    },
    "winogrande": {
        "ctx": "Sarah was surgeon 0, so",
        "choices": [" Sarah got the hard cases.", " Maria got the hard cases."],
        "gold": 1,
    },
    "piqa": {
        "ctx": "Question: Open jar 0\nAnswer:",
        "choices": [" Twist the lid.", " Sing to it."],
        "gold": 0,
    },
    "openbookqa": {
        "ctx": "A person 0 wants to",
        "choices": [" make it", " sell it", " eat it", " have it"],
        "gold": 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DATASETS)
def test_rows_become_questions_in_the_usual_form(asking: Asking, name: str) -> None:
    found = asking.fetch(name)
    assert found[0] == FIRST[name]
    assert len(found) == 200
    items = load_task(name, asking.data, 40)
    assert items is not None
    assert len(items) == 40


def test_labels_may_be_numbers(asking: Asking) -> None:
    assert asking.fetch("arc_easy")[1]["gold"] == 1


def test_rows_come_from_all_of_the_set_in_pages_that_are_allowed(
    server: RowsServer, asking: Asking
) -> None:
    asking.fetch("hellaswag", 700)
    offsets = [int(request["offset"]) for request in server.requests]
    assert offsets == list(range(0, 1000, 100))
    assert {int(request["length"]) for request in server.requests} == {70}
    assert asking.told[0] == (70, 700)
    assert asking.told[-1] == (700, 700)


def test_a_large_number_takes_more_pages_and_never_too_long_ones(
    server: RowsServer, asking: Asking
) -> None:
    server.total = 10_000
    assert len(asking.fetch("arc_easy", 2500)) == 2500
    assert len(server.requests) == 25
    assert all(int(request["length"]) <= MAX_LENGTH for request in server.requests)


@pytest.mark.parametrize("total", [1, 15, 20, 21, 150, 199, 200, 201])
def test_a_small_set_is_fetched_whole_and_nothing_twice(
    server: RowsServer, asking: Asking, total: int
) -> None:
    server.total = total
    found = asking.fetch("openbookqa")
    assert len({row["ctx"] for row in found}) == len(found) == min(total, 200)


def test_no_key_and_no_cookie_is_sent(
    server: RowsServer, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    asking.fetch("mmlu")
    for headers in server.headers:
        assert not {"authorization", "cookie"} & set(headers)
        assert "hf_secret" not in str(headers)


def test_a_busy_server_is_asked_again_after_the_time_it_names(
    server: RowsServer, asking: Asking
) -> None:
    server.failures = [status(429, Retry_After="7"), rows, status(503), status(500)]
    assert len(asking.fetch("hellaswag")) == 200
    assert asking.waits == [7.0, 1.0, 2.0]


def test_the_time_may_be_a_date(server: RowsServer, asking: Asking) -> None:
    at = datetime.now(UTC) + timedelta(seconds=30)
    server.failures = [status(429, Retry_After=format_datetime(at, usegmt=True))]
    asking.fetch("hellaswag")
    assert 20 < asking.waits[0] <= 30


@pytest.mark.parametrize("text", ["soon", "-3", "", "0"])
def test_a_time_that_is_none_is_the_usual_wait(
    server: RowsServer, asking: Asking, text: str
) -> None:
    server.failures = [status(429, Retry_After=text)]
    asking.fetch("hellaswag")
    assert asking.waits == [1.0]


def test_who_asks_for_an_hour_is_not_waited_for(server: RowsServer, asking: Asking) -> None:
    server.failures = [status(429, Retry_After="3600")]
    with pytest.raises(FetchError, match=r"HTTP 429, and asks to wait 3600 s"):
        asking.fetch("hellaswag")
    assert asking.waits == []


@pytest.mark.parametrize("failure", [cut_off, silent])
def test_a_lost_connection_in_the_middle_is_made_good(
    server: RowsServer, asking: Asking, failure: Answer
) -> None:
    server.failures = [rows, rows, failure, failure]
    found = asking.fetch("hellaswag")
    assert len({row["ctx"] for row in found}) == 200
    assert asking.waits == [1.0, 2.0]


def test_what_fails_again_and_again_leaves_no_file(server: RowsServer, asking: Asking) -> None:
    server.failures = [rows, *[cut_off] * 5]
    with pytest.raises(FetchError, match="was lost"):
        asking.fetch("hellaswag")
    assert asking.waits == [1.0, 2.0, 4.0, 8.0]
    assert list(asking.data.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        b"<html>", b"[]", b"{}", b'{"rows": 3}', b'{"rows": [3], "num_rows_total": 9}', b"\xff",
        b'{"rows": [], "num_rows_total": "many"}', b"[" * 100_000,
        b'{"rows": [{"row": {}}], "num_rows_total": 0}',
    ],
)  # fmt: skip
def test_garbage_is_refused_at_once(server: RowsServer, asking: Asking, text: bytes) -> None:
    server.failures = [body(text)] * 2
    with pytest.raises(FetchError, match="something else than rows"):
        asking.fetch("hellaswag")
    assert asking.waits == []
    assert list(asking.data.iterdir()) == []


def test_rows_of_another_form_are_left_out_and_all_of_them_an_error(
    server: RowsServer, asking: Asking
) -> None:
    row = b'{"rows": [{"row": {"question": 3}}], "num_rows_total": 1}'
    server.failures = [body(row)]
    with pytest.raises(FetchError, match="rows of another form"):
        asking.fetch("arc_easy")
    server.total, server.failures = 200, [body(row.replace(b": 1}", b": 200}"))]
    assert len(asking.fetch("arc_easy")) == 180


@pytest.mark.parametrize("number", [302, 401, 403, 404, 422])
def test_a_refusal_is_not_asked_again(server: RowsServer, asking: Asking, number: int) -> None:
    server.failures = [status(number, Location="http://127.0.0.1:9/")]
    with pytest.raises(FetchError, match=f"HTTP {number}"):
        asking.fetch("hellaswag")
    assert len(server.requests) == 1


def test_nobody_there_is_told_apart(tmp_path: Path) -> None:
    asking = Asking("http://127.0.0.1:9", tmp_path)
    with pytest.raises(HostUnreachable, match=r"127\.0\.0\.1:9 cannot be reached"):
        asking.fetch("hellaswag")


@pytest.mark.parametrize("url", ["", "viewer", "file:///etc/passwd", "http://", "http://a:b"])
def test_an_address_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(UsageError, match="datasets_url"), open_viewer(url):
        pass


def test_user_and_password_of_an_address_are_not_shown(server: RowsServer) -> None:
    with open_viewer(server.url.replace("http://", "http://me:secret@")) as viewer:
        assert viewer.host == server.url.removeprefix("http://")


def gathered(
    data: Path, url: str, names: list[str], *, is_offline: bool = False
) -> dict[str, list[Any]]:
    return Gathering(data=data, limit=40, url=url, is_offline=is_offline).tasks(names)


def test_a_task_is_fetched_once_and_another_not_at_all(server: RowsServer, tmp_path: Path) -> None:
    assert list(gathered(tmp_path, server.url, ["smoke", "hellaswag", "mine"])) == [
        "smoke", "hellaswag",
    ]  # fmt: skip
    assert {request["dataset"] for request in server.requests} == {"Rowan/hellaswag"}
    before = len(server.requests)
    assert len(gathered(tmp_path, server.url, ["hellaswag"])["hellaswag"]) == 40
    assert len(server.requests) == before


def test_offline_asks_nobody(
    server: RowsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gathered(tmp_path, server.url, ["piqa"], is_offline=True) == {}
    assert server.requests == []
    said = capsys.readouterr().err
    assert "piqa is left out: nothing is fetched offline" in said
    assert str(tmp_path / "piqa.jsonl") in said


def test_one_that_cannot_be_had_keeps_no_other_from_coming(
    server: RowsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.failures = [status(404)]
    assert list(gathered(tmp_path, server.url, ["hellaswag", "mmlu"])) == ["mmlu"]
    said = capsys.readouterr().err
    assert "hellaswag is left out: 127.0.0.1" in said
    assert "HTTP 404, and there is no" in said
    assert "put a file there, each line an object with ctx, choices and gold" in said


def test_where_nobody_is_there_only_the_first_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gathered(tmp_path, "http://127.0.0.1:9", ["hellaswag", "mmlu"]) == {}
    said = capsys.readouterr().err
    assert said.count("fetching") == 1
    assert said.count("cannot be reached") == 2
