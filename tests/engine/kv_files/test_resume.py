"""A restart changes nothing: the same tokens from the same bits, and only new ones are computed."""

from __future__ import annotations

import shutil
import stat
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from colibri_engine.engine_config import DraftConfig
from colibri_engine.kv_files import conversations
from colibri_engine.notices import NOTICE
from tests.engine.kv_files.resume_rig import FAMILIES, ask, fresh, saving, warnings_of, write_model
from tests.engine.model_rig import Ids, prompt_of, start, submit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=FAMILIES)
def family_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.fixture(scope="module")
def llama_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture
def model(llama_dir: Path, tmp_path: Path) -> Path:
    """A model whose directory nobody has saved to."""
    shutil.copytree(llama_dir, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7}])
def test_a_restart_is_as_no_restart(family_dir: Path, options: dict[str, Any]) -> None:
    for path in family_dir.glob(".coli_kv*"):
        path.unlink()
    prompt = prompt_of(300)
    with saving(family_dir) as engine:
        first = ask(engine, prompt, **options)
        fed = len(prompt) + len(first.ids) - 1
        longer = prompt + first.ids + prompt_of(9, seed=3)
        uninterrupted = ask(start(family_dir), longer, **options)
    for turns in range(3):  # every start goes on from what the one before it saved
        with saving(family_dir) as engine:
            second = ask(engine, longer, **options)
        assert second.num_reused == fed
        assert second.same_as(uninterrupted)
        fed = len(longer) + len(second.ids) - 1
        longer = longer + second.ids + prompt_of(5 + turns, seed=turns)
        uninterrupted = ask(start(family_dir), longer, **options)


def test_only_the_new_tokens_are_computed(model: Path) -> None:
    prompt = prompt_of(300)
    with saving(model) as engine:
        reply = ask(engine, prompt).ids
    with saving(model) as engine:
        turn = ask(engine, [*prompt, *reply, 9], max_tokens=1)
        assert turn.num_reused == 311
        assert engine.report()["num_rows"] == 2  # the last token of the reply, and the new one


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16"])
def test_restored_copied_and_computed_rows_are_the_same(family_dir: Path, kv_dtype: str) -> None:
    for path in family_dir.glob(".coli_kv*"):
        path.unlink()
    prompt = prompt_of(200)
    with saving(family_dir, num_slots=2, kv_dtype=kv_dtype) as engine:
        ask(engine, prompt, 0)
    branch = prompt + prompt_of(30, seed=4)
    with saving(family_dir, num_slots=2, kv_dtype=kv_dtype) as engine:
        copied = ask(engine, branch, 1)
    with saving(family_dir, num_slots=2, kv_share=False, kv_dtype=kv_dtype) as engine:
        restored = ask(engine, branch, 0)
    assert copied.num_reused == restored.num_reused == 200
    assert fresh(family_dir, branch, kv_dtype=kv_dtype).same_as(copied)
    assert copied.same_as(restored)


def test_every_slot_has_its_conversation(model: Path) -> None:
    prompts = [prompt_of(100 + 7 * slot, seed=slot) for slot in range(3)]
    replies: list[Ids] = []
    with saving(model, num_slots=3) as engine:
        replies += [ask(engine, prompt, slot).ids for slot, prompt in enumerate(prompts)]
    assert [p.name for p in sorted(model.glob(".coli_kv*"))] == [
        ".coli_kv", ".coli_kv.1", ".coli_kv.2", ".coli_kv.lock",
    ]  # fmt: skip
    with saving(model, num_slots=3) as engine:
        for slot in (2, 0, 1):
            longer = prompts[slot] + replies[slot] + [8, 9]
            turn = ask(engine, longer)  # finds its slot by itself
            assert turn.num_reused == len(prompts[slot]) + len(replies[slot]) - 1
            assert turn.same_as(fresh(model, longer))


def test_files_of_slots_that_are_no_more_stay(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = prompt_of(50, seed=9)
    with saving(model, num_slots=3) as engine:
        ask(engine, prompt, 2)
    caplog.set_level(NOTICE)
    with saving(model):
        assert any("slots 2 stay" in record.getMessage() for record in caplog.records)
    with saving(model, num_slots=3) as engine:
        assert ask(engine, [*prompt, 8]).num_reused == 50


def test_the_slot_unused_for_longest_gives_way_after_a_restart(model: Path) -> None:
    with saving(model, num_slots=2) as engine:
        ask(engine, prompt_of(40, seed=1), 1)
        ask(engine, prompt_of(40, seed=2), 0)
    with saving(model, num_slots=2) as engine:
        ask(engine, prompt_of(40, seed=3))
        slots: Any = engine.report()["slots"]
        assert ask(engine, [*prompt_of(40, seed=2), 8]).num_reused == 40  # the later one is there
    assert [slot["tokens"] for slot in slots] == [51, 51]


def test_a_turn_that_turns_back_takes_the_rest_off_the_disk(model: Path) -> None:
    prompt = prompt_of(200)
    with saving(model) as engine:
        ask(engine, prompt)
    size = (model / ".coli_kv").stat().st_size
    branch = prompt[:60] + prompt_of(20, seed=5)
    with saving(model) as engine:
        assert ask(engine, branch).num_reused == 60
    assert (model / ".coli_kv").stat().st_size < size
    with saving(model) as engine:
        longer = [*branch, 7]
        turn = ask(engine, longer)
        assert turn.num_reused == 80
        assert turn.same_as(fresh(model, longer))


def test_a_start_tells_what_it_goes_on_from(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with saving(model) as engine:
        ask(engine, prompt_of(30))
    caplog.set_level(NOTICE)
    with saving(model):
        told = [r.getMessage() for r in caplog.records if r.name == "colibri_engine.notices"]
    (line,) = told
    assert line.startswith("conversations go on: slot 0 with 41 tokens, saved just now; ")
    assert "COLI_KV_SAVE=0 starts without them" in line
    assert line.endswith(f"end the engine and remove {model / '.coli_kv'}*")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-60, "just now"), (30, "just now"), (60, "1 minute ago"), (3570, "59 minutes ago"),
        (7200, "2 hours ago"), (86_370, "23 hours ago"), (86_400, "1 day ago"),
        (40 * 86_400, "40 days ago"),
    ],
)  # fmt: skip
def test_a_start_tells_how_old_it_is(
    model: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
    words: str,
) -> None:
    with saving(model) as engine:
        ask(engine, prompt_of(30))
    later = SimpleNamespace(time_ns=lambda: time.time_ns() + seconds * 10**9)
    monkeypatch.setattr(conversations, "time", later)
    caplog.set_level(NOTICE)
    with saving(model):
        pass
    assert f"slot 0 with 41 tokens, saved {words}; " in caplog.text


def test_files_are_their_owners_alone(model: Path) -> None:
    with saving(model) as engine:
        ask(engine, prompt_of(30))
    files = list(model.glob(".coli_kv*"))
    assert len(files) == 2
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    (model / ".coli_kv").chmod(0o644)
    with saving(model):
        assert stat.S_IMODE((model / ".coli_kv").stat().st_mode) == 0o600


def test_nothing_is_saved_when_saving_is_off(model: Path) -> None:
    ask(start(model), prompt_of(30))
    assert not list(model.glob(".coli_kv*"))


def test_a_cancelled_turn_is_saved_as_far_as_it_got(model: Path) -> None:
    prompt = prompt_of(200)
    with saving(model, prefill_chunk=16) as engine:
        submit(engine, 1, prompt)
        for _ in range(5):
            engine.step()
        engine.cancel(1)
    with saving(model, prefill_chunk=16) as engine:
        turn = ask(engine, prompt)
        assert turn.num_reused == 80
        assert turn.same_as(fresh(model, prompt, prefill_chunk=16))


@pytest.mark.parametrize("family", ["llama", "inkling"])
def test_a_long_turn_is_saved_while_it_goes_on(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colibri_engine import slots

    monkeypatch.setattr(slots, "_SAVE_EVERY_S", 0.0)
    model = write_model(tmp_path / "model", family)
    prompt = prompt_of(200)
    with saving(model, prefill_chunk=16) as engine:
        submit(engine, 1, prompt, max_tokens=300)
        for _ in range(60):
            engine.step()
        engine._slots.keeper._writer.flush()  # type: ignore[union-attr]
        shutil.copytree(model, tmp_path / "killed")  # as a kill in this moment would leave it
        shutil.copystat(model / "model.safetensors", tmp_path / "killed" / "model.safetensors")
    with saving(tmp_path / "killed", prefill_chunk=16) as engine:
        turn = ask(engine, [*prompt, 5, 6])
    assert turn.num_reused == 200
    assert turn.same_as(fresh(model, [*prompt, 5, 6], prefill_chunk=16))


def test_a_second_engine_saves_nothing_and_says_so_once(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = prompt_of(60)
    with saving(model) as first:
        reply = ask(first, prompt).ids
        with saving(model) as second:
            (told,) = warnings_of(caplog)
            assert "another engine" in told
            assert str(model) in told
            assert ask(second, prompt_of(90, seed=4)).num_reused == 0
            assert not warnings_of(caplog)
        again = ask(first, prompt + reply + [7])
    with saving(model) as third:
        assert ask(third, prompt + reply + [7]).num_reused == 72
    assert not warnings_of(caplog)
    assert len(again.ids) == 12


@pytest.mark.parametrize("source", ["mtp", "ngram"])
def test_drafts_after_a_restart_change_no_token(source: str, tmp_path: Path) -> None:
    """The draft layer's own rows are not saved: it guesses anew, and only guesses."""
    model = write_model(tmp_path / "model", "glm_moe_dsa")
    drafts = DraftConfig(source=source, tokens=3)
    prompt = prompt_of(60) * 3
    with saving(model, drafts=drafts) as engine:
        reply = ask(engine, prompt, max_tokens=40).ids
    longer = [*prompt, *reply, *prompt_of(7, seed=2)]
    with saving(model, drafts=drafts) as engine:
        turn = ask(engine, longer, max_tokens=40)
    assert turn.num_reused == len(prompt) + 39
    assert turn.ids == ask(start(model), longer, max_tokens=40).ids
