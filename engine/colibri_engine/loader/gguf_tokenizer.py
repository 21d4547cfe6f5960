"""From the vocabulary in a GGUF file to a tokenizer.

Two kinds (`tokenizer.ggml.model`): "gpt2", byte-level BPE with a known split rule, and "llama",
the SentencePiece kind with scores and byte tokens. Others are refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.loader.base import SpecialTokens
from colibri_engine.loader.metadata_reader import MetadataReader
from colibri_engine.loader.split_patterns import SPLIT_RULES, SplitRule
from colibri_engine.loader.tokenizer_source import MAX_TOKEN_ID, AddedToken, TokenizerSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import tokenizers

_END_KEYS: Final = ("eos", "eot", "eom")
# Tokens that end a turn in every family that has them; files often name one of several.
_TURN_ENDS: Final = frozenset(
    {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>"}
)

# Kinds of tokens.
_NORMAL: Final = 1
_CONTROL: Final = 3
_USER_DEFINED: Final = 4

_SPACE: Final = "\u2581"
_MAX_MERGED_LENGTH: Final = 256  # SentencePiece's own default is 16


class GgufVocabulary:
    """The tokenizer data of one GGUF file.

    Args:
        metadata: All metadata of the file.
        path: The file, for messages.

    Raises:
        CheckpointError: the data is missing or contradicts itself.
        UnsupportedModel: its kind or split rule is not known.
    """

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._data = MetadataReader(metadata, path)
        self._path = path
        if "tokenizer.ggml.model" not in self._data:
            raise CheckpointError(
                f"{path} carries no tokenizer",
                path=path,
                hint="use a file converted together with its tokenizer",
            )
        self._tokens = self._data.texts("tokenizer.ggml.tokens")
        if not 0 < len(self._tokens) <= MAX_TOKEN_ID:
            raise self._data.fail(f"the vocabulary has {len(self._tokens)} tokens")
        self._ids = dict(zip(self._tokens, range(len(self._tokens)), strict=True))
        if len(self._ids) != len(self._tokens):
            raise self._data.fail("a token stands twice in the vocabulary")
        kinds = self._data.array("tokenizer.ggml.token_type", len(self._tokens))
        self._kinds = np.full(len(self._tokens), _NORMAL) if kinds is None else kinds
        self._added = self._added_tokens()

    def source(self) -> TokenizerSource:
        """Return what a tokenizer is built from."""
        kind = self._data.text("tokenizer.ggml.model")
        if kind == "gpt2":
            return self._byte_level()
        if kind == "llama":
            return self._sentencepiece()
        raise UnsupportedModel(
            f"{self._path} has a tokenizer of the kind {kind[:40]!r}, which is not supported",
            hint="supported: gpt2 (byte-level BPE) and llama (SentencePiece)",
        )

    def special_tokens(self) -> SpecialTokens:
        """Return the beginning and end tokens: all of the file's end keys together."""
        ends = {found for name in _END_KEYS if (found := self._token_id(name)) is not None}
        ends |= {token.id for token in self._added if token.content in _TURN_ENDS}
        bos, eos = self._token_id("bos"), self._token_id("eos")
        return SpecialTokens(
            bos_token=None if bos is None else self._tokens[bos],
            eos_token=None if eos is None else self._tokens[eos],
            bos_token_id=bos,
            eos_token_ids=tuple(sorted(ends)),
        )

    def _added_tokens(self) -> tuple[AddedToken, ...]:
        control = self._kinds == _CONTROL
        added = np.flatnonzero(control | (self._kinds == _USER_DEFINED)).tolist()
        return tuple(
            AddedToken(token_id, self._tokens[token_id], special=bool(control[token_id]))
            for token_id in added
            if self._tokens[token_id]
        )

    def _token_id(self, name: str) -> int | None:
        found: int | None = self._data.integer(
            f"tokenizer.ggml.{name}_token_id", 0, len(self._tokens) - 1, None
        )
        return found

    def _prefix(self, *, adds_bos: bool) -> tuple[int, ...]:
        bos = self._token_id("bos")
        wanted = self._data.boolean("tokenizer.ggml.add_bos_token", adds_bos)
        return (bos,) if wanted and bos is not None else ()

    # ---- byte-level BPE ----

    def _byte_level(self) -> TokenizerSource:
        rule = self._split_rule()
        merges = [_pair(merge) for merge in self._data.texts("tokenizer.ggml.merges")]
        ids = self._ids
        for first, second in merges:
            if first not in ids or second not in ids or first + second not in ids:
                raise self._data.fail(
                    f"the merge {(first + ' ' + second)[:60]!r} names no known tokens"
                )
        added = self._added

        def build() -> tokenizers.Tokenizer:
            import tokenizers
            from tokenizers import decoders, models, normalizers, pre_tokenizers

            model = models.BPE(ids, merges, ignore_merges=rule.ignore_merges)
            built = tokenizers.Tokenizer(model)
            steps: list[pre_tokenizers.PreTokenizer] = [
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
                for pattern in rule.patterns
            ]
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.gpt2))
            built.pre_tokenizer = pre_tokenizers.Sequence(steps)
            if rule.nfc:
                built.normalizer = normalizers.NFC()
            built.decoder = decoders.ByteLevel()
            _add_tokens(built, added)
            return built

        return TokenizerSource(
            path=self._path,
            added_tokens=added,
            vocab_size=len(self._tokens),
            prefix_ids=self._prefix(adds_bos=rule.adds_bos),
            build=build,
        )

    def _split_rule(self) -> SplitRule:
        name = self._data.text("tokenizer.ggml.pre", "")
        rule = SPLIT_RULES.get(name)
        if rule is None:
            raise UnsupportedModel(
                f"{self._path} names the split pattern {name[:40]!r} (tokenizer.ggml.pre), "
                "which is not known",
                hint=f"known: {', '.join(sorted(SPLIT_RULES))}",
            )
        return rule

    # ---- SentencePiece ----

    def _sentencepiece(self) -> TokenizerSource:
        charsmap = self._data.array("tokenizer.ggml.precompiled_charsmap", None)
        if charsmap is not None and len(charsmap):
            raise UnsupportedModel(
                f"{self._path} normalises text (tokenizer.ggml.precompiled_charsmap), "
                "which is not supported"
            )
        prepends = self._data.boolean("tokenizer.ggml.add_space_prefix", default=True)
        unknown = self._tokens[
            self._data.integer("tokenizer.ggml.unknown_token_id", 0, len(self._tokens) - 1, 0)
        ]
        merges = self._merges_from_scores()
        ids, added = self._ids, self._added

        def build() -> tokenizers.Tokenizer:
            import tokenizers
            from tokenizers import decoders, models, normalizers

            model = models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
            built = tokenizers.Tokenizer(model)
            steps = [normalizers.Prepend(_SPACE)] if prepends else []
            built.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
            built.decoder = decoders.Sequence(
                [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
            )
            _add_tokens(built, added)
            return built

        return TokenizerSource(
            path=self._path,
            added_tokens=added,
            vocab_size=len(self._tokens),
            prefix_ids=self._prefix(adds_bos=True),
            build=build,
            byte_level=False,
            strips_first_space=prepends,
        )

    def _merges_from_scores(self) -> list[tuple[str, str]]:
        """Return the merges whose order of ranks is the order of SentencePiece's scores.

        It joins the two neighbours whose joint token has the highest score; so does BPE when
        every way to cut a token into two tokens is a merge, the best-scored token first.
        """
        scores = self._data.array("tokenizer.ggml.scores", len(self._tokens))
        if scores is None or not np.isfinite(scores).all():
            raise self._data.fail("tokenizer.ggml.scores is missing or not finite")
        normal = np.flatnonzero(self._kinds == _NORMAL)
        ids = self._ids
        merges: list[tuple[str, str]] = []
        for token_id in normal[np.argsort(-scores[normal], kind="stable")].tolist():
            token = self._tokens[token_id]
            if len(token) > _MAX_MERGED_LENGTH:
                raise self._data.fail(f"the token {token[:40]!r} has {len(token)} characters")
            cuts = [
                (token[:cut], token[cut:])
                for cut in range(1, len(token))
                if token[:cut] in ids and token[cut:] in ids
            ]
            merges += sorted(cuts, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        return merges


def _pair(merge: str) -> tuple[str, str]:
    first, _, second = merge.partition(" ")
    return first, second


def _add_tokens(built: tokenizers.Tokenizer, added: tuple[AddedToken, ...]) -> None:
    import tokenizers

    built.add_tokens(
        [
            tokenizers.AddedToken(token.content, normalized=False, special=token.special)
            for token in added
        ]
    )
