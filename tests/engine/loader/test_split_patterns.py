"""How each family named in a GGUF file cuts text; an unknown name is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from colibri_engine.errors import UnsupportedModel
from colibri_engine.loader.gguf_tokenizer import GgufVocabulary
from colibri_engine.loader.split_patterns import SPLIT_RULES
from colibri_engine.tokenizer import Tokenizer
from tests.fakes.tiny_checkpoint import tiny_config
from tests.fakes.tiny_gguf import gguf_metadata

STRINGS = [
    "", " ", " 20", "2026", "(abc", "CAN'T wait", "世界hello", "\r\n\t x", " \n ", "é😀世界",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "  two  spaces  ", "e\u0301", "\x00\x7f",
    "\U0001d7d8 \u0663\u0664 \u2167 \u00bd", "a/b//\n\nC", "HelloWORLD's", "<think>",
]  # fmt: skip


def tokenizer_of(pre: str | None) -> Tokenizer:
    metadata = gguf_metadata(tiny_config("llama")) | {"tokenizer.ggml.pre": pre}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return Tokenizer(GgufVocabulary(metadata, Path("m.gguf")).source())


def pieces_of(pre: str, text: str) -> list[str]:
    """Return how a family cuts a text, spelled out."""
    inner = tokenizer_of(pre)._inner
    assert inner.pre_tokenizer is not None
    return [text[start:end] for _, (start, end) in inner.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "text", "wanted"),
    [
        ("smollm", "in 2026, CAN'T", ["in", " ", "2", "0", "2", "6", ",", " CAN", "'", "T"]),
        ("smollm", "can't  go", ["can", "'t", " ", " go"]),
        ("gpt-2", "in 2026,\n\n x", ["in", " 2026", ",", "\n\n", " x"]),
        ("llama-bpe", "in 12345 CAN'T (a", ["in", " ", "123", "45", " CAN", "'T", " (", "a"]),
        ("llama-bpe", "x;\n\n\n y", ["x", ";\n\n\n", " y"]),
        ("glm4", "in 12345 CAN'T", ["in", " ", "123", "45", " CAN", "'T"]),
        ("qwen2", "in 123 (abc", ["in", " ", "1", "2", "3", " (", "abc"]),
        ("qwen2", "(abc", ["(abc"]),
        ("deepseek-v3", "a1234世界b", ["a", "123", "4", "世界", "b"]),
        ("deepseek-v3", "_foo bar", ["_foo", " bar"]),
        ("gpt-4o", "HelloWORLD's x", ["Hello", "WORLD's", " x"]),
        (
            "gpt-4o",
            "in 12345 a/b\n//\n c",
            ["in", " ", "123", "45", " a", "/b", "\n", "//\n", " c"],
        ),
        ("gpt-4o", "(abc  x", ["(abc", " ", " x"]),
        ("gpt-4o", "世界hello", ["世界hello"]),
        ("kimi-k2", "世界hello HeLLO's", ["世界", "hello", " He", "LLO's"]),
        ("kimi-k2", "日本のa1234//\n\n", ["日本", "のa", "123", "4", "//\n\n"]),
    ],
)
def test_each_family_cuts_text_its_own_way(pre: str, text: str, wanted: list[str]) -> None:
    assert pieces_of(pre, text) == wanted


@pytest.mark.parametrize("pre", sorted(SPLIT_RULES))
def test_every_rule_loses_nothing(pre: str) -> None:
    tokenizer = tokenizer_of(pre)
    for text in STRINGS:
        if text == "e\u0301" and SPLIT_RULES[pre].nfc:
            continue  # composed
        assert tokenizer.decode(tokenizer.encode_text(text)) == text


@pytest.mark.parametrize("pre", ["something-new", "", None, "default"])
def test_an_unknown_rule_is_refused_by_name(pre: str | None) -> None:
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.ggml\.pre") as caught:
        tokenizer_of(pre)
    assert repr(pre or "") in str(caught.value)
    assert "llama-bpe" in str(caught.value.hint)
