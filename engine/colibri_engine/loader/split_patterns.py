"""How each known tokenizer family cuts text before merging: facts about published models.

A GGUF file names its family in `tokenizer.ggml.pre`. An unknown name is refused, because a wrong
pattern gives almost, but not quite, the right ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(digits: str) -> str:
    """Return the pattern of the cl100k family, which differs only in how digits are cut."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_TAIL}"


def _cased(besides: str = "") -> str:
    """Return the words of the o200k family: capitals, then small letters, then a contraction.

    Args:
        besides: What no letter may be, as the end of a character class.
    """
    capitals = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{besides}]"
    small = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{besides}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{before}{capitals}*{small}+{_CONTRACTIONS}?|{before}{capitals}+{small}*{_CONTRACTIONS}?"
    )


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How text is cut.

    Args:
        patterns: Regular expressions applied one after another; a match stands alone.
        gpt2: Whether the pattern of GPT-2 comes last.
        ignore_merges: A piece that is itself in the vocabulary is taken whole.
        adds_bos: The family begins texts with a token, unless the file says otherwise.
        nfc: Text is normalised to composed form first.
    """

    patterns: tuple[str, ...] = ()
    gpt2: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False
    nfc: bool = False


_DEEPSEEK3_WORDS: Final = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2: Final = SplitRule(gpt2=True)
_SINGLE_DIGITS: Final = SplitRule((r"\p{N}",), gpt2=True)
_LLAMA3: Final = SplitRule((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True, adds_bos=True)
_GLM4: Final = SplitRule((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True)
_CL100K: Final = SplitRule((_cl100k(r"\p{N}{1,3}"),))
_QWEN2: Final = SplitRule((_cl100k(r"\p{N}"),), nfc=True)
_O200K_TAIL: Final = _TAIL.replace(r"[\r\n]*|", r"[\r\n/]*|", 1)
_O200K: Final = SplitRule((rf"{_cased()}|\p{{N}}{{1,3}}|{_O200K_TAIL}",), ignore_merges=True)
_NOT_HAN: Final = r"&&[^\p{Han}]"
_KIMI_K2: Final = SplitRule(
    (rf"\p{{Han}}+|{_cased(_NOT_HAN)}|\p{{N}}{{1,3}}|{_TAIL}",), ignore_merges=True
)
_DEEPSEEK3: Final = SplitRule(
    (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3_WORDS)
)

SPLIT_RULES: Final[dict[str, SplitRule]] = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "olmo": _GPT2,
    "mpt": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "glm4": _GLM4,
    "chatglm-bpe": _GLM4,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": _QWEN2,
    "stablelm2": _QWEN2,
    "deepseek-v3": _DEEPSEEK3,
    "gpt-4o": _O200K,
    "kimi-k2": _KIMI_K2,
}
