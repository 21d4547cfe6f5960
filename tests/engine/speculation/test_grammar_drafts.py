"""What a grammar forces is drafted: under a constraint, and where it was only sent as help."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.engine_config import DraftConfig
from colibri_engine.errors import SettingsError
from colibri_engine.grammar import GrammarCompiler
from colibri_engine.grammar_guide import Guide, compile_guide
from colibri_engine.speculation.cost import FixedDepth
from colibri_engine.speculation.drafting import Drafting
from colibri_engine.speculation.grammar import GrammarDrafter
from colibri_protocol.messages import Finished, Grammar, RequestOptions, Submit, SubmitExtended
from tests.engine.engine_rig import Rig, scripted
from tests.engine.model_rig import start
from tests.engine.test_engine import caches_match_histories
from tests.engine.worker_rig import WorkerRig
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer
from tests.fakes.tiny_checkpoint import write_hf

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.fake_model import FakeModel

SCHEMA = json.dumps({
    "type": "object",
    "properties": {"location": {"type": "string", "maxLength": 3}, "hot": {"type": "boolean"}},
    "required": ["location", "hot"],
    "additionalProperties": False,
})  # fmt: skip
OBJECT = b'{"location": "abc", "hot": true}'
GBNF = b'root ::= "BEGIN " name " END"\nname ::= [a-z]+\n'


def compiler() -> GrammarCompiler:
    return GrammarCompiler(ByteTokenizer(), VOCAB_SIZE, frozenset({EOS}))  # type: ignore[arg-type]


def grammar_drafting(max_tokens: int = 24) -> Drafting:
    return Drafting([GrammarDrafter(max_tokens)], VOCAB_SIZE, FixedDepth(1))


def run(
    rig: Rig,
    *,
    schema: str | None = None,
    guide: bytes | None = None,
    prompt: bytes = b"hello",
    **options: Any,  # noqa: ANN401 - any field of RequestOptions
) -> bytes:
    """Run one request with a grammar that binds it, or one that only helps; return its bytes."""
    request = SubmitExtended(1, 0, RequestOptions(**{"max_tokens": 80, **options}), ())
    rig.keep(
        rig.engine.submit(
            request,
            np.array(list(prompt), np.int32),
            None if schema is None else compiler().compile(Grammar("json_schema", schema)),
            None if guide is None else compile_guide(compiler(), guide),
        )
    )
    rig.run(1)
    rig.finished(1)
    caches_match_histories(rig)
    return rig.data(1)


def counts(rig: Rig) -> tuple[int, int]:
    found: Any = rig.engine.report()["drafts"]
    return found["grammar"]["drafted"], found["grammar"]["accepted"]


# ---- under a constraint ----


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}, {"temperature": 1.5, "seed": 6}],
)
def test_a_bound_reply_is_the_same_in_fewer_steps(options: dict[str, Any]) -> None:
    plain, drafted = Rig(), Rig(drafting=grammar_drafting())
    reply = run(plain, schema=SCHEMA, **options)
    assert run(drafted, schema=SCHEMA, **options) == reply
    assert json.loads(reply).keys() == {"location", "hot"}
    forced, accepted = counts(drafted)
    assert forced > 15
    assert accepted == forced  # every token is one byte here: there is no other way to cut it
    assert len(drafted.model.forwards) < len(plain.model.forwards) - 10


def test_no_more_is_drafted_than_is_allowed() -> None:
    rig = Rig(drafting=grammar_drafting(max_tokens=3))
    run(rig, schema=SCHEMA)
    assert max(rows for step in rig.model.forwards[1:] for rows in step) == 4


def test_looking_ahead_leaves_the_state_alone() -> None:
    constraint = compiler().compile(Grammar("json_schema", SCHEMA))
    row = np.zeros(VOCAB_SIZE, np.float32)
    for byte in OBJECT:
        before = constraint.masked(row)
        constraint.forced()
        np.testing.assert_array_equal(constraint.masked(row), before)
        constraint.accept(byte)
    assert constraint.is_complete
    assert constraint.forced() == []


# ---- as help only ----


def following(text: bytes, guide: Guide) -> list[bytes]:
    """Return what the guide says before each byte of a text, and at its end."""
    told = [bytes(guide.forced())]
    for byte in text:
        guide.follow([byte])
        told.append(bytes(guide.forced()))
    return told


def test_a_guide_is_silent_until_the_reply_begins_to_follow_it() -> None:
    guide = compile_guide(compiler(), SCHEMA.encode())
    assert guide is not None
    thinking = b"Let me see. "
    told = following(thinking + OBJECT, guide)
    assert told[: len(thinking) + 1] == [b""] * (len(thinking) + 1)
    behind_quote = told[len(thinking) + len(b'{"')]
    assert behind_quote == b'location"'


@pytest.mark.parametrize("text", [b'{ "location" : "abc" , "hot": true }', b'{\n  "location": "a'])
def test_white_space_anywhere_does_not_lose_the_guide(text: bytes) -> None:
    guide = compile_guide(compiler(), SCHEMA.encode())
    assert guide is not None
    assert b'location"' in following(text, guide)


def test_a_reply_that_leaves_the_grammar_is_left_alone_and_may_come_back() -> None:
    guide = compile_guide(compiler(), GBNF)
    assert guide is not None
    assert following(b"BEG", guide)[-1] == b"IN "
    assert following(b"!", guide)[-1] == b""
    assert following(b"B", guide)[-1] == b"EGIN "
    told = following(b"EGIN abc EN", guide)
    assert told[-1] == b"D"
    assert following(b"D", guide)[-1] == b""  # complete
    assert following(b"B", guide)[-1] == b"EGIN "  # and once more


@pytest.mark.parametrize(
    "text", [b"", b"root ::= other", b"{", b'{"type": 7}', b"\xff\xfe", b"no grammar at all"]
)
def test_what_is_no_grammar_costs_the_help_only(text: bytes) -> None:
    assert compile_guide(compiler(), text) is None


def test_words_of_a_schema_that_cannot_be_enforced_do_not_cost_the_help() -> None:
    schema = {**json.loads(SCHEMA), "not": {"type": "string"}}
    guide = compile_guide(compiler(), json.dumps(schema).encode())
    assert guide is not None
    assert following(b'{"', guide)[-1] == b'location"'


def guided_models() -> list[tuple[FakeModel, int]]:
    """Models whose reply follows the grammar, leaves it, or never meets it; and what that saves."""
    return [
        (scripted(OBJECT, 5), 8),
        (scripted(b'Sure: {"location": "abc", "hut": true}', 5), 6),
        (scripted(b"I would rather not.", 5), 0),
    ]


@pytest.mark.parametrize("case", range(3))
def test_a_guide_changes_no_token(case: int) -> None:
    model, saved = guided_models()[case]
    reply = run(Rig(model=guided_models()[case][0]), temperature=0.0)
    rig = Rig(model=model, drafting=grammar_drafting())
    assert run(rig, guide=SCHEMA.encode(), temperature=0.0) == reply
    assert len(rig.model.forwards) <= len(reply) + 1 - saved
    assert counts(rig)[1] >= saved


def test_a_guide_follows_a_reply_whose_drafts_another_source_gave() -> None:
    from tests.fakes.scripted_drafter import ScriptedDrafter

    text = OBJECT + b"<eos>"
    other = ScriptedDrafter(lambda ids, limit: [*text[len(ids) - 5 :][:limit]])
    drafting = Drafting([GrammarDrafter(24), other], VOCAB_SIZE, FixedDepth(2))
    rig = Rig(model=scripted(OBJECT, 5), drafting=drafting)
    assert run(rig, guide=SCHEMA.encode(), temperature=0.0) == OBJECT
    found: Any = rig.engine.report()["drafts"]
    assert found["grammar"]["accepted"] >= 8
    assert found["ngram"]["accepted"] >= 4


@pytest.mark.parametrize("grammar", [SCHEMA.encode(), b"nonsense"])
def test_an_older_gateway_may_send_a_grammar_as_help(grammar: bytes) -> None:
    with WorkerRig(model=scripted(OBJECT, 5), has_caps=False, drafting=grammar_drafting()) as rig:
        rig.send(Submit(1, 0, b"hello", 60, 0.0, 1.0, grammar))
        rig.wait_for(Finished, 1)
        assert rig.data(1) == OBJECT
        saved = len(OBJECT) + 1 - len(rig.rig.model.forwards)
        assert (saved >= 8) == (grammar == SCHEMA.encode())


def test_replies_may_be_expected_to_follow_a_grammar() -> None:
    rig = Rig(model=scripted(OBJECT, 5), drafting=grammar_drafting())
    rig.engine.expect(compiler().compile_loosely(SCHEMA))
    assert rig.answer("hello", max_tokens=60) == OBJECT
    assert rig.answer("hallo", max_tokens=60) == OBJECT  # each reply from the beginning
    assert counts(rig)[1] >= 16


def test_a_file_for_that_is_read_at_the_start_or_named(tmp_path: Path) -> None:
    model = write_hf(tmp_path / "tiny").path
    file = tmp_path / "schema.json"
    drafts = DraftConfig(source="grammar", grammar_path=file)
    with pytest.raises(SettingsError, match=r"schema\.json cannot be used"):
        start(model, drafts=drafts)
    file.write_text('{"type": 7}')
    with pytest.raises(SettingsError, match=r"schema\.json cannot be used"):
        start(model, drafts=drafts)
    file.write_text(" " * (5 << 20))
    with pytest.raises(SettingsError, match=r"schema\.json cannot be used: it has more than"):
        start(model, drafts=drafts)
    file.unlink()
    os.mkfifo(file)  # nobody writes to it: reading would wait for ever
    with pytest.raises(SettingsError, match=r"schema\.json cannot be used: it is no plain file"):
        start(model, drafts=drafts)
    file.unlink()
    file.write_text(SCHEMA)
    assert start(model, drafts=drafts)._expected is not None


def test_without_drafts_such_a_grammar_is_not_compiled() -> None:
    assert not Rig().engine.uses_guides
    assert Rig(drafting=grammar_drafting()).engine.uses_guides
