"""Commands of a chat, each with what the model is asked next."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from colibri_cli.backends.base import ReasoningDelta, TextDelta
from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from colibri_cli.errors import EngineCrashed, ServerRefused, ServerUnreachable
from tests.cli.chat.chat_rig import ScriptedBackend, chat, completed


def answering(*texts: str) -> ScriptedBackend:
    backend = ScriptedBackend()
    for text in texts:
        backend.will_answer(text)
    return backend


def test_the_conversation_grows_by_message_and_answer() -> None:
    backend = answering("a1", "a2")
    chat(backend, ["q1", "q2"], system="S")
    assert backend.prompts[1] == [
        ("system", "S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"),
    ]  # fmt: skip


def test_reasoning_is_shown_kept_for_later_and_never_sent() -> None:
    backend = ScriptedBackend()
    backend.will_answer("a1", reasoning="hm")
    backend.will_answer("a2")
    done = chat(backend, ["q1", "/think last", "q2", "/think last"])
    assert done.screen.reasoning == "hm"
    assert "hm" in done.screen.notices
    assert ("assistant", "a1") in backend.prompts[1]
    assert "no reasoning" in done.screen.errors[0].message


def test_more_continues_and_joins_the_answer() -> None:
    backend = ScriptedBackend()
    backend.will_answer("one ", finish="length")
    backend.will_answer("two")
    backend.will_answer("three")
    done = chat(backend, ["count", "/more", "next"])
    assert [c.continues_last for c, _ in backend.asked] == [False, True, False]
    assert backend.prompts[2][1] == ("assistant", "one two")
    assert done.screen.continued == ["", "one ", ""]


def test_more_without_an_answer_says_so() -> None:
    done = chat(answering(), ["/more", ":continua"])
    assert [e.message for e in done.screen.errors] == ["there is no answer to continue"] * 2


def test_regen_asks_the_same_again_without_the_old_answer() -> None:
    backend = answering("bad", "good", "x")
    chat(backend, ["q", "/regen", "next"])
    assert backend.prompts[1] == [("user", "q")]
    assert backend.prompts[2][:2] == [("user", "q"), ("assistant", "good")]


def test_undo_takes_turns_back() -> None:
    backend = answering("a1", "a2", "a3", "a4")
    done = chat(backend, ["q1", "q2", "/undo", "q3", "/undo 2", "q4", "/undo 5", "/undo x"])
    empty = chat(answering(), ["/undo", "/code"])
    assert backend.prompts[2] == [("user", "q1"), ("assistant", "a1"), ("user", "q3")]
    assert backend.prompts[3] == [("user", "q4")]
    assert [e.message for e in done.screen.errors] == [
        "5 cannot be taken back: this conversation has 1",
        "'x' is not the number of turns to take back",
    ]  # fmt: skip
    assert [e.message for e in empty.screen.errors] == [
        "there is no message in this conversation yet",
        "there is no answer to copy from yet",
    ]


def test_edit_offers_the_old_text_and_replaces_the_turn_and_all_after_it() -> None:
    backend = answering("a1", "a2", "a3")
    done = chat(backend, ["q1", "q2", "/edit 1", "Q1", "/edit 7", "/edit 1", ""])
    assert "q1" in done.source.defaults
    assert backend.prompts[2] == [("user", "Q1")]
    assert done.screen.errors[0].message == "there is no message 7: this conversation has 1"
    assert done.screen.notices[-1] == "left as it was"
    assert [turn.prompt for turn in done.session.turns] == ["Q1"]


def test_reset_forgets_messages_and_files(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    backend = answering("a1", "a2")
    chat(backend, ["q1", f"/file {tmp_path / 'f'}", ":reset", "q2"])
    assert backend.prompts[1] == [("user", "q2")]


def test_a_file_goes_along_once_in_a_block_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "with space.md"
    path.write_text("# T\n```\ncode\n```\n")
    backend = answering("a1", "a2", "a3")
    chat(backend, [f"/file {path}", "q1", "q2", "/edit 1", "q3"])
    expected = f"{path}:\n````\n# T\n```\ncode\n```\n````\n\n"
    assert backend.prompts[0] == [("user", f"{expected}q1")]
    assert backend.prompts[1][2] == ("user", "q2")
    assert backend.prompts[2] == [("user", f"{expected}q3")]


def test_files_can_be_dropped_and_pasted_text_attached(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("content")
    backend = answering("a1")
    done = chat(backend, [f"/file {path}", f"/drop {path}", "/drop", "/paste", "some\nlines", "q1"])
    assert backend.prompts[0] == [("user", "pasted text:\n```\nsome\nlines\n```\n\nq1")]
    assert done.screen.errors[0].message == "nothing is attached"
    assert done.screen.errors[0].hint == "/file PATH attaches a file"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\x89PNG\r\n\x1a\n", "is not text in UTF-8"),
        (b"a\0b", "is not text"),
        (b"x" * ((1 << 20) + 1), "1,048,577 bytes, more than the 1,048,576"),
        (None, "there is no file"),
    ],
)
def test_what_cannot_go_along_is_refused_by_name(
    tmp_path: Path, content: bytes | None, wanted: str
) -> None:
    path = tmp_path / "f"
    if content is not None:
        path.write_bytes(content)
    done = chat(answering(), [f"/file {path}", f"/file {tmp_path}"])
    assert wanted in done.screen.errors[0].message
    assert str(path) in done.screen.errors[0].message
    assert "is not a file" in done.screen.errors[1].message


def test_a_file_named_behind_an_at_sign_goes_along(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("content")
    backend = answering("a1", "a2", "a3")
    chat(backend, [f"see @{path}, please", "write to me@example.org or @nobody", f'"""@{path}"""'])
    assert backend.prompts[0][0][1].startswith(f"{path}:\n```\ncontent\n```")
    assert backend.prompts[1][2] == ("user", "write to me@example.org or @nobody")
    assert backend.prompts[2][4] == ("user", f"@{path}")


def test_the_system_text_is_shown_set_and_removed() -> None:
    backend = answering("a1", "a2")
    done = chat(backend, ["/system Be brief.", "/system", "q1", "/system off", "q2"])
    assert backend.prompts[0][0] == ("system", "Be brief.")
    assert backend.prompts[1][0] == ("user", "q1")
    assert "Be brief." in done.screen.notices


def test_options_are_checked_and_sent() -> None:
    backend = answering("a1", "a2")
    done = chat(
        backend,
        [
            "/set temp 0", "/set top-p 0.5", "/set max-tokens 7", "/set seed 3", "/set stop END",
            "/set stop \\n", "q1", "/set temp default", "/set max-tokens default", "/set stop off",
            "q2", "/set temp 3", "/set tmp 1", "/set temp", "/set", "/set top-k x",
        ],
    )  # fmt: skip
    first, second = backend.asked[0][1], backend.asked[1][1]
    assert (first.options.temperature, first.options.top_p) == (0.0, 0.5)
    assert (first.options.max_tokens, first.options.seed, first.stop) == (7, 3, ("END", "\n"))
    assert (second.options.temperature, second.options.max_tokens, second.stop) == (None, 16384, ())
    messages = [e.message for e in done.screen.errors]
    assert "'3' is not a number in 0..2" in messages[0]
    assert messages[1] == "there is no option 'tmp'"
    assert messages[2] == "/set temp needs a value"
    assert "'x'" in messages[3]
    assert any(line.split() == ["top-p", "0.5"] for line in done.screen.notices)


def test_thinking_and_showing_are_switched() -> None:
    backend = answering("a1", "a2")
    done = chat(
        backend, ["/think on", "q1", "/think off", "q2", "/think hide", "/raw", "/think so"]
    )
    assert [c.thinking for c, _ in backend.asked] == [True, False]
    assert not done.screen.shows_reasoning
    assert not done.screen.is_markdown
    assert "/think takes on, off" in done.screen.errors[0].message


def test_figures_can_be_left_out() -> None:
    done = chat(answering("a1", "a2"), ["/stats off", "q1", "/stats", "q2", "/stats nope"])
    assert sum("tok/s" in line for line in done.screen.notices) == 1
    assert "'nope'" in done.screen.errors[0].message


def test_answers_and_code_are_copied_as_they_were_written() -> None:
    answer = "See:\n\n```py\n\tx = 1\n```\n\n- and\n  ```\n  y\n  ```\n"
    first = ["/copy", "q1", "/code", "/code 1", "/code 3"]
    done = chat(answering(answer, "b"), [*first, "q2", "/copy", "/copy 1", "/copy 3", "/code"])
    assert done.screen.copied == ["y\n", "\tx = 1\n", "b", answer]
    assert [error.message for error in done.screen.errors] == [
        "there is no answer to copy yet",
        "there is no block 3: the last answer has 2",
        "there is no answer 3: this conversation has 2",
        "there is no block of code in the last answer",
    ]


def test_unknown_commands_are_not_sent_and_the_nearest_is_named() -> None:
    backend = answering()
    done = chat(backend, ["/udno", "/xyzzy"])
    assert backend.asked == []
    near, unlike = done.screen.errors
    assert (near.message, unlike.message) == (
        "there is no command /udno", "there is no command /xyzzy",
    )  # fmt: skip
    assert "did you mean /undo?" in (near.hint or "")
    assert "did you mean" not in (unlike.hint or "")


def test_help_tells_about_every_command_and_about_one() -> None:
    done = chat(answering(), ["/help", "/help more", "/help nope"])
    text = "\n".join(done.screen.notices)
    for name in ("/undo", "/regen", "/file [PATH]", "/search WORDS", "Ctrl-C"):
        assert name in text
    assert "also /continua, /più, /piu" in text
    assert "there is no command nope" in done.screen.errors[0].message


def test_a_message_without_an_answer_leaves_the_conversation_and_can_be_sent_again() -> None:
    backend = answering("a1")
    backend.will_fail(ServerRefused("the context is full", status=400))
    backend.will_answer("a2")
    done = chat(backend, ["q1", "q2", "/retry", "/retry"])
    assert backend.prompts[2] == [("user", "q1"), ("assistant", "a1"), ("user", "q2")]
    assert done.screen.errors[0].message == "the context is full"
    assert "there is no message without an answer" in done.screen.errors[1].message
    assert done.exit_code == 0


def test_a_lost_server_does_not_end_the_chat() -> None:
    backend = ScriptedBackend()
    backend.will_fail(ServerUnreachable("gone"), text="part")
    backend.will_answer("a")
    done = chat(backend, ["q", "/retry"])
    assert done.screen.answers == ["part", "a"]
    assert any("/retry" in line for line in done.screen.notices)


def test_an_overloaded_server_is_asked_once_more_when_it_says() -> None:
    backend = ScriptedBackend()
    backend.will_fail(ServerRefused("busy", status=429, retry_after_s=0.01))
    backend.will_answer("a")
    done = chat(backend, ["q"])
    assert done.screen.errors == []
    assert backend.prompts == [[("user", "q")], [("user", "q")]]
    assert done.screen.statuses[0].startswith("busy · again in")
    assert done.screen.answers == ["a"]


def test_an_overloaded_server_is_not_asked_for_ever() -> None:
    backend = ScriptedBackend()
    for _ in range(2):
        backend.will_fail(ServerRefused("busy", status=429, retry_after_s=0.01))
    backend.will_fail(ServerRefused("very busy", status=429, retry_after_s=86_400))
    done = chat(backend, ["q", "q2"])
    assert [e.message for e in done.screen.errors] == ["busy", "very busy"]


def test_an_engine_that_dies_is_told_apart_from_a_refusal() -> None:
    backend = ScriptedBackend(num_crashes=1)
    backend.will_fail(EngineCrashed("ended by SIGKILL", stderr_tail=("last words",)))
    backend.will_answer("a")
    done = chat(backend, ["q", "/retry"])
    assert done.exit_code == 6
    assert any("ready again" in line for line in done.screen.notices)


def log_of(path: Path, *turns: LoggedTurn) -> LoggedConversation:
    talk = LoggedConversation(id=new_id(), title="about whales", model="other")
    with ChatLog(path) as log:
        for turn in turns:
            log.add_turn(talk, turn)
    return talk


def test_every_answer_is_logged_with_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    backend = ScriptedBackend()
    backend.answers.append([ReasoningDelta("hm"), TextDelta("a1"), completed("length")])
    backend.will_answer(" more")
    backend.will_answer("a2")
    chat(backend, ["/set temp 0", "q1", "/more", "q2"], log=path, system="S")
    with ChatLog(path) as log:
        (talk,) = log.conversations()
        first, second = log.turns(talk)
    assert (talk.title, talk.model, talk.num_turns) == ("q1", "tiny", 2)
    assert (first.response, first.reasoning, first.finish) == ("a1 more", "hm", "stop")
    assert (first.prompt_tokens, first.completion_tokens, first.tok_s) == (10, 2, 20.0)
    assert (first.ttft_ms, first.duration_ms, first.hit_pct) == (100, 200, 50.0)
    assert (first.options, first.system) == ({"temperature": 0.0}, "S")
    assert second.parent_id == first.id


def test_the_log_follows_what_is_taken_back_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    backend = answering("a1", "a2", "a3", "a4")
    chat(backend, ["q1", "q2", "/undo", "/regen", "/reset", "q4"], log=path)
    with ChatLog(path) as log:
        new, old = log.conversations()
        assert [t.response for t in log.turns(new)] == ["a4"]
        assert [t.response for t in log.turns(old)] == ["a3"]


def test_a_conversation_of_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    first = LoggedTurn(prompt="q1", response="a1", system="S")
    last = LoggedTurn(prompt="q2", response="a2", parent_id=first.id, system="S")
    talk = log_of(path, first, last)
    backend = answering("a3")
    done = chat(backend, [f"/load {talk.id[:12]}", "q3"], log=path)
    assert backend.prompts[0] == [
        ("system", "S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2"),
        ("user", "q3"),
    ]  # fmt: skip
    assert any("so far with other" in line for line in done.screen.notices)
    with ChatLog(path) as log:
        assert [t.prompt for t in log.turns(log.find(talk.id))] == ["q1", "q2", "q3"]
        assert len(log.conversations()) == 1


def test_the_log_is_listed_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    talk = log_of(path, LoggedTurn(prompt="Where do whales sleep?", response="In the sea."))
    done = chat(
        answering(), ["/history", "/search whales sle", "/search cats", "/search"], log=path
    )
    assert done.screen.notices[0].startswith(talk.short_id)
    assert "  Where do [whales] [sleep]?" in done.screen.notices
    assert "nothing in the log has 'cats'" in done.screen.notices
    assert "name the words" in done.screen.errors[0].message


def test_without_a_log_looking_into_it_is_refused_with_the_reason() -> None:
    done = chat(answering("a"), ["q", "/history", "/load X"])
    assert [e.message for e in done.screen.errors] == ["this chat keeps no log"] * 2


def test_a_log_that_cannot_be_written_is_said_once_and_does_not_cost_the_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "logs.db"
    path.write_bytes(b"not a database" * 100)
    done = chat(answering("a1", "a2"), ["q1", "q2"], log=path)
    assert done.screen.answers == ["a1", "a2"]
    assert sum("goes on without it" in line for line in done.screen.notices) == 1


def test_a_conversation_is_saved_for_reading_and_for_programs(tmp_path: Path) -> None:
    lines = ["/save", "q1", f"/save {tmp_path / 'x.md'}", f"/save {tmp_path / 'x.json'}",
             f"/save {tmp_path / 'x.md'}", f"/save {tmp_path / 'no' / 'x.md'}"]  # fmt: skip
    done = chat(answering("a1"), lines, system="S")
    assert (
        (tmp_path / "x.md")
        .read_text()
        .endswith("## System\n\nS\n\n## User\n\nq1\n\n## Assistant\n\na1\n")
    )
    assert stat.S_IMODE((tmp_path / "x.md").stat().st_mode) == 0o600
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["responses"][0]["response"] == "a1"
    messages = [e.message for e in done.screen.errors]
    assert messages[0] == "there is nothing to save yet"
    assert "exists already" in messages[1]
    assert "cannot be written" in messages[2]


def test_a_command_without_its_argument_tells_how_things_stand(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("text")
    lines = ["/think", "/attach", "/template", "/file", "q1", f"/file {path}", "/file", "/load"]
    done = chat(answering("a1"), lines, log=tmp_path / "logs.db")
    assert done.screen.errors == []
    told = "\n".join(done.screen.notices)
    for part in (
        "thinking: left to the model; reasoning is shown",
        "/think on or off changes it",
        "tiny on an engine of this chat's own",
        "no templates yet",
        "nothing is attached; /file PATH attaches a file",
        f"{path} (4 bytes)",
        "/load ID goes on with one",
    ):
        assert part in told


def test_a_file_in_the_home_of_nobody_is_refused_by_name() -> None:
    done = chat(answering(), ["/file ~nobody-of-this-name/x"])
    assert "~nobody-of-this-name/x" in done.screen.errors[0].message
