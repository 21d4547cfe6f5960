"""Ids are those of the reference package, text stays text, and characters leave whole."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.errors import BadOption, CheckpointError, ColibriError, UnsupportedModel
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.gguf_tokenizer import GgufVocabulary
from colibri_engine.loader.hf_tokenizer import TokenizerFiles
from colibri_engine.loader.tokenizer_source import AddedToken
from colibri_engine.tokenizer import Tokenizer
from colibri_protocol.messages import Segment, SegmentKind
from tests.fakes.tiny_checkpoint import (
    CONTROL_TOKENS,
    PLAIN_ADDED_TOKENS,
    VOCAB_SIZE,
    tiny_config,
    tokenizer_json,
    vocabulary,
    write_json,
)
from tests.fakes.tiny_gguf import gguf_metadata

if TYPE_CHECKING:
    import tokenizers

FAMILY_EMOJI = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
STRINGS = [
    "", " ", "  ", " 20", "2026", "(abc", "CAN'T wait", "can't we'll I'd", "世界hello",
    "\r\n\t x", "\n\n", " \n ", FAMILY_EMOJI, "é😀世界", "hello world", "  two  spaces  ",
    "tab\tend", "a\u00a0b", "\u200b", "e\u0301", "x" * 300, "20 + 22 = 42", "<think>", "\x00\x7f",
    "\U0001d7d8\U0001d7d9 \u0663\u0664 \u2167 \u00bd", "The capital of France is Paris.",
]  # fmt: skip


def control(text: str) -> Segment:
    return Segment(SegmentKind.CONTROL, text)


def plain(text: str) -> Segment:
    return Segment(SegmentKind.TEXT, text)


def from_json(
    directory: Path, body: dict[str, Any], config: dict[str, Any] | None = None
) -> Tokenizer:
    write_json(directory / "tokenizer.json", body)
    if config is not None:
        write_json(directory / "tokenizer_config.json", config)
    return Tokenizer(TokenizerFiles(directory).source())


def from_gguf(**changes: object) -> Tokenizer:
    metadata = gguf_metadata(tiny_config("llama")) | changes
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return Tokenizer(GgufVocabulary(metadata, Path("m.gguf")).source())


@pytest.fixture(scope="module")
def reference() -> tokenizers.Tokenizer:
    import tokenizers

    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json()))


@pytest.fixture(scope="module", params=["tokenizer.json", "gguf"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tokenizer]:
    if request.param == "gguf":
        yield from_gguf()
    else:
        yield from_json(tmp_path_factory.mktemp("tokenizer"), tokenizer_json())


CONTROL_IDS = set(range(len(CONTROL_TOKENS)))
MARK_IDS = set(range(len(CONTROL_TOKENS) + len(PLAIN_ADDED_TOKENS)))


# ---- the same ids as the reference --------------------------------------------------------------


@pytest.mark.parametrize("text", STRINGS)
def test_control_text_gives_the_ids_of_the_reference(
    tokenizer: Tokenizer, reference: tokenizers.Tokenizer, text: str
) -> None:
    wrapped = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>"
    for whole in (text, wrapped):
        wanted = reference.encode(whole, add_special_tokens=False).ids
        assert tokenizer.encode([control(whole)]) == wanted


@pytest.mark.parametrize("text", [text for text in STRINGS if text != "<think>"])
def test_framed_text_gives_the_ids_of_the_reference(
    tokenizer: Tokenizer, reference: tokenizers.Tokenizer, text: str
) -> None:
    segments = [control("<|im_start|>user\n"), plain(text), control("<|im_end|>\n")]
    whole = "".join(segment.text for segment in segments)
    wanted = reference.encode(whole, add_special_tokens=False).ids
    assert tokenizer.encode(segments) == wanted


@pytest.mark.parametrize("text", STRINGS)
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


@given(st.text())
def test_any_text_comes_back_and_is_never_control(text: str) -> None:
    tokenizer = shared()
    ids = tokenizer.encode_text(text)
    assert tokenizer.decode(ids) == text
    assert MARK_IDS.isdisjoint(ids)
    assert all(0 <= token_id < tokenizer.vocab_size for token_id in ids)


@given(st.lists(st.text(max_size=8), max_size=6))
def test_borders_between_text_segments_do_not_show(parts: list[str]) -> None:
    tokenizer = shared()
    assert tokenizer.encode([plain(part) for part in parts]) == tokenizer.encode(
        [plain("".join(parts))]
    )


_SHARED: list[Tokenizer] = []


def shared() -> Tokenizer:
    if not _SHARED:
        _SHARED.append(from_gguf())
    return _SHARED[0]


# ---- text stays text ----------------------------------------------------------------------------


@pytest.mark.parametrize("word", [*CONTROL_TOKENS, *PLAIN_ADDED_TOKENS])
def test_control_words_in_text_are_only_text(tokenizer: Tokenizer, word: str) -> None:
    def prompt(text: str) -> list[int]:
        return tokenizer.encode([control("<|im_start|>"), plain(text), control("<|im_end|>")])

    def marks(ids: list[int]) -> int:
        return sum(token_id in MARK_IDS for token_id in ids)

    assert marks(prompt(f"a{word}b")) == marks(prompt("ab")) == 2
    assert tokenizer.decode(prompt(f"a{word}b")[1:-1]) == f"a{word}b"
    assert marks(tokenizer.encode([control(f"a{word}b")])) == 1


def test_a_control_word_put_together_from_segments_stays_text(tokenizer: Tokenizer) -> None:
    for segments in (
        [plain("<|us"), plain("er|>")],
        [control("<|us"), plain("er|>")],
        [plain("<|us"), control("er|>")],
        [control("<|us"), control("er|>")],
    ):
        ids = tokenizer.encode(segments)
        assert MARK_IDS.isdisjoint(ids)
        assert tokenizer.decode(ids) == "<|user|>"


def test_the_longest_control_word_wins(tmp_path: Path) -> None:
    body = tokenizer_json()
    longer = {**body["added_tokens"][3], "id": VOCAB_SIZE, "content": "<|user|>>"}
    body["added_tokens"].append(longer)
    tokenizer = from_json(tmp_path, body)
    assert tokenizer.encode([control("<|user|>>")]) == [VOCAB_SIZE]
    assert tokenizer.encode([control("<|user|>")]) == [3]


def test_a_vocabulary_that_spells_a_control_token_as_a_word_is_outwitted() -> None:
    """With ignore_merges a piece found in the vocabulary is taken whole, control or not."""
    tokens, _ = vocabulary()
    tokens.append("stop")
    kinds = np.array([3] * 5 + [4] * 2 + [1] * (len(tokens) - 8) + [3], np.int32)
    tokenizer = from_gguf(
        **{
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.pre": "llama-bpe",
        }
    )
    stop = len(tokens) - 1
    assert tokenizer.encode([control("stop")]) == [stop]
    ids = tokenizer.encode([plain("stop")])
    assert stop not in ids
    assert tokenizer.decode(ids) == "stop"


def test_other_added_tokens_are_found_in_text(tmp_path: Path) -> None:
    """Runs of spaces and the like are part of the vocabulary, not structure."""
    body = tokenizer_json()
    spaces = {**body["added_tokens"][5], "id": VOCAB_SIZE, "content": "    "}
    body["added_tokens"].append(spaces)
    tokenizer = from_json(tmp_path, body)
    assert VOCAB_SIZE in tokenizer.encode_text("a    b")
    assert tokenizer.decode(tokenizer.encode_text("a    b")) == "a    b"


def test_stripping_tokens_swallow_white_space_like_the_reference(tmp_path: Path) -> None:
    import tokenizers

    body = tokenizer_json()
    body["added_tokens"][1] |= {"rstrip": True}
    body["added_tokens"][2] |= {"lstrip": True}
    body["added_tokens"][3] |= {"single_word": True}
    ours = from_json(tmp_path, body)
    reference = tokenizers.Tokenizer.from_str(json.dumps(body))
    for text in ("<|im_start|> \n\u3000 a  <|im_end|> b", "a<|user|>b <|user|> c", "<|im_start|> "):
        wanted = reference.encode(text, add_special_tokens=False).ids
        assert ours.encode([control(text)]) == wanted


# ---- what begins a text -------------------------------------------------------------------------


def test_the_first_token_is_added_once() -> None:
    tokenizer = from_gguf(**{"tokenizer.ggml.add_bos_token": True})
    assert tokenizer.encode([plain("a")])[0] == 1
    assert tokenizer.encode([control("<|im_start|>a")]).count(1) == 1
    assert tokenizer.encode([]) == [1]
    assert 1 not in tokenizer.encode([plain("a")], add_prefix=False)
    assert 1 not in from_gguf().encode([plain("a")])


def test_the_family_decides_when_the_file_does_not() -> None:
    def prefix(pre: str) -> list[int]:
        changes = {"tokenizer.ggml.add_bos_token": None, "tokenizer.ggml.pre": pre}
        return from_gguf(**changes).encode([])

    assert prefix("llama-bpe") == [1]
    assert prefix("smollm") == prefix("glm4") == prefix("qwen2") == []


def template(*tokens: str) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens]
    return {
        "type": "TemplateProcessing",
        "single": [*single, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {
            token: {"id": token, "ids": [CONTROL_TOKENS.index(token)], "tokens": [token]}
            for token in tokens
        },
    }


def test_the_post_processor_says_what_begins_a_text(tmp_path: Path) -> None:
    body = tokenizer_json()
    body["post_processor"] = {
        "type": "Sequence",
        "processors": [body["decoder"], template("<|im_start|>", "<|user|>")],
    }
    assert from_json(tmp_path, body).encode([]) == [1, 3]
    off = {"add_bos_token": False}
    assert from_json(tmp_path, body, off).encode([]) == []
    body["post_processor"] = None
    on = {"add_bos_token": True, "bos_token": "<|user|>"}
    assert from_json(tmp_path, body, on).encode([]) == [3]


# ---- characters leave whole ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["é😀世界", FAMILY_EMOJI, "a é b", "日本語テキスト"])
def test_a_stream_gives_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    decoder = tokenizer.decoder()
    pieces = [decoder.feed(token_id) for token_id in tokenizer.encode_text(text)]
    assert "" in pieces  # tokens cut inside characters
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + decoder.flush() == text


def test_a_stream_that_ends_inside_a_character_drops_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("hi 😀")
    decoder = tokenizer.decoder()
    assert "".join(map(decoder.feed, ids[:-2])) + decoder.flush() == "hi "
    assert tokenizer.decode(ids[:-2]) == "hi "


def test_bytes_that_are_no_text_become_replacement_marks(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode_text("é")
    assert tokenizer.decode([second, first, second]) == "\ufffdé"
    assert tokenizer.decode([first, first, second]) == "\ufffdé"


def test_streams_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("😀")
    one, two = tokenizer.decoder(), tokenizer.decoder()
    pieces = [(one.feed(token_id), two.feed(token_id)) for token_id in ids]
    assert pieces[-1] == ("😀", "😀")


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40))
def test_pieces_add_up_to_the_bytes(ids: list[int]) -> None:
    tokenizer = shared()
    decoder = tokenizer.decoder()
    streamed = "".join(map(decoder.feed, ids)) + decoder.flush()
    raw = b"".join(map(tokenizer.token_bytes, ids))
    whole = raw.decode("utf-8", "replace")
    assert whole.startswith(streamed)
    assert set(whole[len(streamed) :]) <= {"\ufffd"}


def test_control_tokens_can_be_left_out(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode([control("<|im_start|>a<think>b<|im_end|>")])
    assert tokenizer.decode(ids) == "<|im_start|>a<think>b<|im_end|>"
    assert tokenizer.decode(ids, skip_special=True) == "a<think>b"
    assert [tokenizer.is_special(token_id) for token_id in ids] == [True, False, False, False, True]


def test_token_bytes_are_those_of_the_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(0) == b"<|endoftext|>"
    for token_id, token in enumerate(vocabulary()[0]):
        if token == "Ġworld":
            assert tokenizer.token_bytes(token_id) == b" world"
    singles = {tokenizer.token_bytes(token_id) for token_id in range(7, 7 + 256)}
    assert singles == {bytes([byte]) for byte in range(256)}


# ---- ids are checked ----------------------------------------------------------------------------


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 1 << 21, (1 << 21) + 1, 1 << 40])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    assert tokenizer.vocab_size == VOCAB_SIZE
    for use in (
        lambda: tokenizer.token_bytes(token_id),
        lambda: tokenizer.decode([token_id]),
        lambda: tokenizer.check_ids("stop_ids", [0, token_id]),
    ):
        with pytest.raises(BadOption, match=str(token_id)):
            use()
    tokenizer.check_ids("stop_ids", [0, VOCAB_SIZE - 1])


def test_special_tokens_are_listed(tokenizer: Tokenizer) -> None:
    wanted = {token: token_id for token_id, token in enumerate(CONTROL_TOKENS)}
    assert tokenizer.special_tokens == wanted


def test_markup_is_what_looks_like_it() -> None:
    assert AddedToken(0, "</think>", special=False).is_markup
    assert AddedToken(0, "x", special=True).is_markup
    assert not AddedToken(0, "  ", special=False).is_markup
    assert not AddedToken(0, "a < b", special=False).is_markup


def test_ids_may_have_holes(tmp_path: Path) -> None:
    body = tokenizer_json()
    body["model"]["vocab"]["far"] = VOCAB_SIZE + 100
    tokenizer = from_json(tmp_path, body)
    assert tokenizer.vocab_size == VOCAB_SIZE + 101
    assert tokenizer.token_bytes(VOCAB_SIZE + 100) == b"far"
    with pytest.raises(BadOption):
        tokenizer.token_bytes(VOCAB_SIZE + 50)


# ---- vocabularies of GGUF files ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", "plamo2", "x\ny"])
def test_an_unknown_kind_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        from_gguf(**{"tokenizer.ggml.model": kind})
    assert repr(kind) in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.model": None},
        {"tokenizer.ggml.tokens": None},
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.tokens": ["a"] * VOCAB_SIZE},
        {"tokenizer.ggml.tokens": np.arange(VOCAB_SIZE)},
        {"tokenizer.ggml.token_type": np.ones(3, np.int32)},
        {"tokenizer.ggml.token_type": "x"},
        {"tokenizer.ggml.merges": None},
        {"tokenizer.ggml.merges": ["nospace"]},
        {"tokenizer.ggml.merges": ["zz yy"]},
        {"tokenizer.ggml.merges": ["a zz"]},
        {"tokenizer.ggml.merges": ["a b"]},  # "ab" is no token
        {"tokenizer.ggml.bos_token_id": VOCAB_SIZE},
        {"tokenizer.ggml.bos_token_id": -1},
        {"tokenizer.ggml.add_bos_token": 1},
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        from_gguf(**changes)


# ---- SentencePiece ------------------------------------------------------------------------------


def sentencepiece_metadata(**changes: object) -> dict[str, object]:
    words = ["▁hello", "▁world", "hello", "he", "ll", "lo", "▁w", "or", "ld", "orld", "▁he", "▁▁"]
    words += ["el", "ell", "ello", "▁", "wo", "wor", "worl", "aa", "aaa", "ab", "ba"]
    letters = sorted(set("".join(words)) - {"▁"}) + list("cftx.,!é")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(tokens)
    order = random.Random(3).sample(range(len(words)), len(words))
    scores += [-float(place) for place in order] + [-100.0 - place for place in range(len(letters))]
    tokens += words + letters + ["<|user|>"]
    kinds += [1] * (len(words) + len(letters)) + [3]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array([*scores, 0.0], np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **changes,
    }


def sentencepiece(**changes: object) -> Tokenizer:
    metadata = {k: v for k, v in sentencepiece_metadata(**changes).items() if v is not None}
    return Tokenizer(GgufVocabulary(metadata, Path("m.gguf")).source())


def merge_by_score(text: str) -> list[str]:
    """SentencePiece's own rule: join the neighbours of the best score, the leftmost first."""
    metadata: dict[str, Any] = sentencepiece_metadata()
    columns = (metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores"))
    scores = {token: score for token, kind, score in zip(*columns, strict=True) if kind == 1}
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [first + second for first, second in pairwise(parts)]
        known = [(scores[token], -place) for place, token in enumerate(joined) if token in scores]
        if not known:
            return parts
        place = -max(known)[1]
        parts[place : place + 2] = [joined[place]]


@given(st.text("helowrdab ", min_size=1, max_size=24))
def test_scores_merge_as_sentencepiece_does(text: str) -> None:
    tokenizer = _SENTENCEPIECE[0] if _SENTENCEPIECE else sentencepiece()
    _SENTENCEPIECE[:] = [tokenizer]
    ids = tokenizer.encode_text(text)
    assert "".join(tokenizer._inner.id_to_token(i) or "?" for i in ids) == "▁" + text.replace(
        " ", "▁"
    )
    assert [tokenizer._inner.id_to_token(token_id) for token_id in ids] == merge_by_score(text)


_SENTENCEPIECE: list[Tokenizer] = []


def test_unknown_characters_become_bytes_and_come_back() -> None:
    tokenizer = sentencepiece()
    assert tokenizer.encode([]) == [1]  # begins with <s> unless the file says otherwise
    for text in ["hello 世界", "😀", "a\nb", " hello", "é", "<|user|> <0x41>"]:
        ids = tokenizer.encode_text(text)
        assert tokenizer.decode(ids) == text
        assert not {0, 1, 2, tokenizer.vocab_size - 1} & set(ids)
    decoder = tokenizer.decoder()
    pieces = [decoder.feed(token_id) for token_id in tokenizer.encode_text("世")]
    assert "".join(pieces).lstrip() == "世"
    assert pieces.count("") == 2


def test_a_reply_keeps_its_first_space() -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode_text("hello")
    assert tokenizer.decode(ids) == "hello"
    decoder = tokenizer.decoder()
    assert "".join(map(decoder.feed, ids)) == " hello"


def test_the_space_prefix_can_be_off() -> None:
    tokenizer = sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})
    assert tokenizer.token_bytes(tokenizer.encode_text("hello")[0]) == b"he"
    assert tokenizer.decode(tokenizer.encode_text(" hello")) == " hello"


def test_a_sentencepiece_vocabulary_needs_scores() -> None:
    for scores in (None, np.full(10, 1.0), np.full(VOCAB_SIZE, np.nan)):
        with pytest.raises(CheckpointError, match="scores"):
            sentencepiece(**{"tokenizer.ggml.scores": scores})
    charsmap = {"tokenizer.ggml.precompiled_charsmap": np.ones(4, np.int8)}
    with pytest.raises(UnsupportedModel, match="precompiled_charsmap"):
        sentencepiece(**charsmap)


def test_metaspace_prepends_only_at_the_start_of_a_prompt(tmp_path: Path) -> None:
    import tokenizers

    metaspace = {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False,
    }  # fmt: skip
    metadata = sentencepiece_metadata()
    inner = sentencepiece()._inner
    body = json.loads(inner.to_str())
    body |= {"normalizer": None, "pre_tokenizer": metaspace, "decoder": metaspace}
    tokenizer = from_json(tmp_path, body)
    reference = tokenizers.Tokenizer.from_str(json.dumps(body))
    for text in ["hello", "<s>hello", "hello<s>world<s> hello", "<s><s>a"]:
        wanted = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode([control(text)]) == wanted
    assert len(metadata) > 0


# ---- tokenizer.json that nobody should trust ----------------------------------------------------


def vocab_id(value: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["model"]["vocab"].update(a=value)


def first_merge(value: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["model"]["merges"].__setitem__(0, value)


def first_added(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["added_tokens"][0].__setitem__(key, value)


def top(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body.__setitem__(key, value)


def within_model(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["model"].__setitem__(key, value)


UNKNOWN_TEMPLATE = {**template(), "single": [{"SpecialToken": {"id": "?", "type_id": 0}}]}
BROKEN_PATTERN = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}
CHANGES = {
    "model absent": top("model", None),
    "model is a list": top("model", []),
    "vocab absent": within_model("vocab", None),
    "vocab is a list": within_model("vocab", ["a"]),
    "merges absent": within_model("merges", None),
    "negative id": vocab_id(-1),
    "huge id": vocab_id((1 << 21) + 1),
    "id is text": vocab_id("1"),
    "id is a fraction": vocab_id(1.5),
    "id is true": vocab_id(value=True),
    "merge of one": first_merge("he"),
    "merge of three": first_merge(["h", "e", "l"]),
    "merge is a number": first_merge(7),
    "merge is unknown": first_merge(["h", "zz"]),
    "merge gives no token": first_merge(["h", "z"]),
    "added without content": first_added("content", None),
    "added without id": first_added("id", None),
    "added is empty": first_added("content", ""),
    "added with a negative id": first_added("id", -5),
    "added with a huge id": first_added("id", 1 << 40),
    "added with another id": first_added("id", 100),
    "added is a number": top("added_tokens", [1]),
    "added is an object": top("added_tokens", {}),
    "broken pattern": top("pre_tokenizer", {**BROKEN_PATTERN, "invert": False}),
    "unknown step": top("pre_tokenizer", {"type": "Nonsense"}),
    "broken normaliser": top("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "template of an unknown token": top("post_processor", UNKNOWN_TEMPLATE),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, change: str) -> None:
    body = tokenizer_json()
    CHANGES[change](body)
    with pytest.raises(CheckpointError) as caught:
        from_json(tmp_path, body)
    assert "tokenizer.json" in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("model", {"type": "WordPiece", "vocab": {}}, "WordPiece"),
        ("model", {"type": "WordLevel", "vocab": {}}, "WordLevel"),
        ("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}, "WordPiece"),
        ("decoder", None, "nothing"),
    ],
)
def test_other_kinds_are_refused_by_name(
    tmp_path: Path, key: str, value: object, word: str
) -> None:
    with pytest.raises(UnsupportedModel, match=word):
        from_json(tmp_path, {**tokenizer_json(), key: value})


def test_word_affixes_are_refused(tmp_path: Path) -> None:
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        body = tokenizer_json()
        body["model"][key] = "##"
        with pytest.raises(UnsupportedModel, match=key):
            from_json(tmp_path, body)


def test_merges_may_be_pairs(tmp_path: Path) -> None:
    body = tokenizer_json()
    body["model"]["merges"] = [merge.split(" ") for merge in body["model"]["merges"]]
    assert from_json(tmp_path, body).encode_text("hello") == from_gguf().encode_text("hello")


PARTS: list[Any] = [
    None, True, 0, -1, 1 << 21, 1 << 31, 1 << 32, 1 << 64, 1e30, "", "x", "é", "▁", "<|user|>",
    [], {}, ["a", "b"], [[]], {"type": "ByteLevel"}, {"type": "NFC"}, {"type": []},
    {"type": "Sequence", "pretokenizers": []}, {"type": "Metaspace", "prepend_scheme": "first"},
    {"type": "Replace", "pattern": {"String": ""}, "content": ""},
    {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
]  # fmt: skip


def rearranged(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    body = copy.deepcopy(body)
    *path, last = rng.choice([place for place in walk(body) if place])
    parent: Any = body
    for key in path:
        parent = parent[key]
    if rng.random() < 0.2 and isinstance(parent, dict):
        del parent[last]
    else:
        parent[last] = copy.deepcopy(rng.choice(PARTS))
    return body


def walk(node: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield paths into a JSON value, few of them into long lists."""
    yield path
    if isinstance(node, dict):
        for key in list(node)[:40]:
            yield from walk(node[key], (*path, key))
    elif isinstance(node, list):
        for key in range(min(len(node), 8)):
            yield from walk(node[key], (*path, key))


def test_rearranged_tokenizers_load_or_are_refused(tmp_path: Path) -> None:
    refused: list[str] = []
    for seed in range(600):
        body = rearranged(tokenizer_json(), random.Random(seed))
        try:
            tokenizer = from_json(tmp_path, body)
            ids = tokenizer.encode_text("hello 20 é<|user|>")
        except ColibriError as error:
            refused.append(str(error))
        else:
            tokenizer.decode(ids)
            assert set(tokenizer.special_tokens.values()).isdisjoint(ids)
    assert 0 < len(refused) < 600
    assert all(message.isprintable() for message in refused)


# ---- the real vocabulary ------------------------------------------------------------------------


def test_smollm2_gives_the_ids_of_the_published_tokenizer(smollm2_gguf: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from tokenizers import AddedToken as ReferenceToken
    from tokenizers import Tokenizer as Reference
    from tokenizers import decoders, models, pre_tokenizers

    fields = gguf.GGUFReader(smollm2_gguf).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    reference = Reference(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    reference.decoder = decoders.ByteLevel()
    reference.add_special_tokens([ReferenceToken(t, normalized=False) for t in tokens[:17]])

    checkpoint = open_checkpoint(smollm2_gguf)
    tokenizer = Tokenizer(checkpoint.tokenizer)
    for text in STRINGS:
        wanted = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode_text(text) == wanted
        assert tokenizer.decode(wanted) == text
        whole = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        wanted = reference.encode(whole, add_special_tokens=False).ids
        assert tokenizer.encode([control(whole)]) == wanted
    assert checkpoint.special_tokens.eos_token_ids == (0, 2)
    assert checkpoint.special_tokens.bos_token == "<|im_start|>"
    assert tokenizer.encode([plain("hi")]) == tokenizer.encode([plain("hi")], add_prefix=False)
    checkpoint.close()
