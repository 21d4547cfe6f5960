"""The log of conversations: kept privately, found again, resumed from where it stood."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri_cli.chat_log.export import as_json, as_markdown, fenced
from colibri_cli.chat_log.records import (
    Attachment,
    LoggedConversation,
    LoggedTurn,
    new_id,
    title_of,
)
from colibri_cli.chat_log.schema import MIGRATIONS
from colibri_cli.chat_log.store import ChatLog
from colibri_cli.errors import LogError


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChatLog]:
    with ChatLog(tmp_path / "data" / "logs.db") as opened:
        yield opened


def conversation(title: str = "about whales") -> LoggedConversation:
    return LoggedConversation(id=new_id(), title=title, model="tiny")


def test_the_files_are_the_users_own(log: ChatLog) -> None:
    log.add_turn(conversation(), LoggedTurn(prompt="a", response="b"))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in log.path.parent.iterdir()}
    assert set(modes) == {"logs.db", "logs.db-wal", "logs.db-shm"}
    assert set(modes.values()) == {0o600}


def test_turns_come_back_whole_and_in_order(log: ChatLog) -> None:
    talk = conversation()
    file = Attachment("a.py", "print(1)\n", "text/x-python")
    first = LoggedTurn(
        prompt="p1", response="r1", system="S", reasoning="hm", options={"temperature": 0.0},
        prompt_tokens=3, completion_tokens=4, ttft_ms=5, duration_ms=6, tok_s=7.5, hit_pct=8.0,
        finish="stop", attachments=(file,),
    )  # fmt: skip
    second = LoggedTurn(prompt="p2", response="r2", parent_id=first.id, attachments=(file, file))
    log.add_turn(talk, first)
    log.add_turn(talk, second)
    found = log.find(talk.id[:10].lower())
    assert (found.id, found.head, found.num_turns) == (talk.id, second.id, 2)
    assert log.turns(found) == [first, second]


def test_a_continued_answer_is_one_turn_and_is_found_by_its_new_words(log: ChatLog) -> None:
    talk = conversation()
    turn = LoggedTurn(prompt="count", response="one")
    log.add_turn(talk, turn)
    log.add_turn(talk, LoggedTurn(id=turn.id, prompt="count", response="one two"))
    assert [t.response for t in log.turns(log.find(talk.id))] == ["one two"]
    assert [hit.turn_id for hit in log.search("two")] == [turn.id]


def test_what_was_taken_back_is_not_resumed(log: ChatLog) -> None:
    talk = conversation()
    first = LoggedTurn(prompt="p1", response="r1")
    wrong = LoggedTurn(prompt="p2", response="wrong", parent_id=first.id)
    right = LoggedTurn(prompt="p2", response="right", parent_id=first.id)
    for turn in (first, wrong):
        log.add_turn(talk, turn)
    log.set_head(talk.id, first.id)
    assert [t.response for t in log.turns(log.find(talk.id))] == ["r1"]
    log.add_turn(talk, right)
    assert [t.response for t in log.turns(log.find(talk.id))] == ["r1", "right"]
    log.set_head(talk.id, None)
    assert log.turns(log.find(talk.id)) == []
    assert log.search("wrong"), "it stays in the log"


def test_the_conversation_used_last_comes_first(log: ChatLog) -> None:
    old, new = conversation("old"), conversation("new")
    log.add_turn(old, LoggedTurn(prompt="a", response="b"))
    log.add_turn(new, LoggedTurn(prompt="c", response="d"))
    assert [c.title for c in log.conversations()] == ["new", "old"]
    log.add_turn(old, LoggedTurn(prompt="e", response="f"))
    assert [c.title for c in log.conversations(1)] == ["old"]


def test_search_needs_all_words_and_takes_a_beginning(log: ChatLog) -> None:
    talk = conversation()
    log.add_turn(talk, LoggedTurn(prompt="Where do blue whales sleep?", response="In the sea."))
    log.add_turn(talk, LoggedTurn(prompt="And cats?", response="Everywhere."))
    assert [h.excerpt for h in log.search("blue wha")] == ["Where do [blue] [whales] sleep?"]
    assert len(log.search("sea")) == 1
    assert log.search("blue cats") == []
    assert log.search("  ") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(words=st.text(max_size=30))
def test_no_search_is_a_syntax_error(log: ChatLog, words: str) -> None:
    assert log.search(words.replace("\0", "")) == []


@pytest.mark.parametrize("beginning", ["", "ZZZZ", "%", "0"])
def test_an_id_that_names_no_single_conversation_is_refused(log: ChatLog, beginning: str) -> None:
    for _ in range(2):
        log.add_turn(conversation(), LoggedTurn(prompt="a", response="b"))
    with pytest.raises(LogError, match="the log has"):
        log.find(beginning)


def test_removing_takes_turns_words_and_files_along(log: ChatLog) -> None:
    kept, gone = conversation(), conversation()
    shared, own = Attachment("s", "shared"), Attachment("o", "own")
    log.add_turn(kept, LoggedTurn(prompt="keep", response="x", attachments=(shared,)))
    log.add_turn(gone, LoggedTurn(prompt="lose", response="y", attachments=(shared, own)))
    log.remove(gone.id)
    assert log.search("lose") == []
    assert [c.id for c in log.conversations()] == [kept.id]
    with sqlite3.connect(log.path) as db:
        names = db.execute("SELECT name FROM attachments").fetchall()
    db.close()
    assert names == [("s",)]


def test_a_log_of_a_newer_version_is_left_alone(log: ChatLog) -> None:
    with sqlite3.connect(log.path) as db:
        db.execute("INSERT INTO migrations VALUES (?, 'later')", (len(MIGRATIONS) + 1,))
    db.close()
    with pytest.raises(LogError, match=f"version {len(MIGRATIONS) + 1}"):
        ChatLog(log.path)


def test_a_damaged_file_and_a_forbidden_place_are_named(tmp_path: Path) -> None:
    damaged = tmp_path / "logs.db"
    damaged.write_bytes(b"not a database" * 100)
    with pytest.raises(LogError, match=r"logs\.db cannot be used"):
        ChatLog(damaged)
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=r"file/logs\.db"):
        ChatLog(tmp_path / "file" / "logs.db")


def test_many_may_begin_the_same_log_at_once(tmp_path: Path) -> None:
    failures: list[Exception] = []

    def begin(path: Path) -> None:
        try:
            with ChatLog(path) as log:
                log.add_turn(conversation(), LoggedTurn(prompt="a", response="b"))
        except LogError as error:
            failures.append(error)

    for number in range(20):  # which of the writers meet is luck
        path = tmp_path / f"logs{number}.db"
        threads = [threading.Thread(target=begin, args=(path,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        with ChatLog(path) as log:
            assert len(log.conversations()) == 6


def test_a_log_another_program_holds_is_given_up_on(log: ChatLog) -> None:
    holder = sqlite3.connect(log.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(LogError, match="locked"):
            log.add_turn(conversation(), LoggedTurn(prompt="a", response="b"))
    finally:
        holder.close()
    log.add_turn(conversation(), LoggedTurn(prompt="a", response="b"))


def test_ids_are_as_long_as_they_should_be_and_differ() -> None:
    ids = [new_id() for _ in range(100)]
    assert {len(one) for one in ids} == {26}
    assert len(set(ids)) == 100
    assert ids[0][:6] <= ids[-1][:6]


@pytest.mark.parametrize(
    ("prompt", "title"),
    [("\n  a  b\nc", "a b"), ("", ""), ("x" * 61, "x" * 59 + "…"), ("x" * 60, "x" * 60)],
)
def test_titles(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


def test_exports_hold_everything() -> None:
    talk = conversation()
    file = Attachment("a.md", "```\ncode\n```")
    turn = LoggedTurn(prompt="p", response="r", system="S", attachments=(file,), tok_s=1.5)
    text = as_markdown(talk, [turn])
    assert text == (
        f"# about whales\n\ntiny · {talk.created}\n\n## System\n\nS\n\n## User\n\n"
        "a.md:\n````\n```\ncode\n```\n````\n\np\n\n## Assistant\n\nr\n"
    )
    document = json.loads(as_json(talk, [turn]))
    assert document["schema_version"] == 1
    assert document["conversation"]["id"] == talk.id
    assert document["responses"][0]["attachments"][0]["text"] == file.text
    assert document["responses"][0]["tok_s"] == 1.5


def test_an_empty_file_is_a_block_too() -> None:
    assert fenced("e", "") == "e:\n```\n```"


def test_a_full_disk_costs_what_did_not_fit_and_no_more(log: ChatLog) -> None:
    log.add_turn(conversation("kept"), LoggedTurn(prompt="a", response="b"))
    db = log._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LogError, match="full"):
        log.add_turn(conversation("lost"), LoggedTurn(prompt="a", response="b" * 1_000_000))
    assert not db.in_transaction
    db.execute("PRAGMA max_page_count = 1000000")
    log.add_turn(conversation("after"), LoggedTurn(prompt="a", response="b"))
    assert [one.title for one in log.conversations()] == ["after", "kept"]


def test_a_log_that_cannot_begin_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(database: str) -> sqlite3.Connection:
        connection = connect(database, isolation_level=None)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **_: full(path))
    with pytest.raises(LogError, match="full"):
        ChatLog(tmp_path / "logs.db")
