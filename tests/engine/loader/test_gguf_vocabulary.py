"""Which tokens of a GGUF file end a turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colibri_engine.loader.base import SpecialTokens
from colibri_engine.loader.gguf_tokenizer import GgufVocabulary
from tests.fakes.tiny_checkpoint import tiny_config
from tests.fakes.tiny_gguf import gguf_metadata

CONTROL, USER_DEFINED, NORMAL = 3, 4, 1


def special_tokens(added: dict[str, int], **keys: int) -> SpecialTokens:
    """Read a vocabulary of added tokens (text -> kind) and one letter; ids in that order."""
    metadata = gguf_metadata(tiny_config("llama"))
    tokens = [*added, "a"]
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([*added.values(), NORMAL], np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }
    metadata |= {f"tokenizer.ggml.{key}_token_id": value for key, value in keys.items()}
    return GgufVocabulary(metadata, Path("m.gguf")).special_tokens()


def test_the_keys_of_the_file_are_ends() -> None:
    added = {"[EOS]": CONTROL, "<|user|>": CONTROL, "<|observation|>": CONTROL}
    assert special_tokens(added, eos=0, eot=1, eom=2).eos_token_ids == (0, 1, 2)


@pytest.mark.parametrize(
    "token", ["<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>"]
)
@pytest.mark.parametrize("kind", [CONTROL, USER_DEFINED])
def test_a_token_that_ends_a_turn_everywhere_is_one_without_a_key(token: str, kind: int) -> None:
    assert special_tokens({"[EOS]": CONTROL, token: kind}).eos_token_ids == (0, 1)


@pytest.mark.parametrize("token", ["<|end|>", "<|im_start|>", "<|user|>", "</think>"])
def test_other_marks_are_no_ends(token: str) -> None:
    assert special_tokens({"[EOS]": CONTROL, token: CONTROL}).eos_token_ids == (0,)


def test_a_word_that_is_only_spelled_like_an_end_is_none() -> None:
    assert special_tokens({"[EOS]": CONTROL, "<|im_end|>": NORMAL}).eos_token_ids == (0,)
