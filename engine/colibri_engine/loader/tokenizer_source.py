"""What a tokenizer is built from, whichever file it stands in.

Plain data and one function that builds; the `tokenizers` package is imported only then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import tokenizers

MAX_TOKEN_ID: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token found in text before everything else.

    Args:
        id: Its id.
        content: Its text.
        special: It is a control token: never part of what a person wrote.
        strips_left: It swallows white space before it.
        strips_right: It swallows white space after it.
        single_word: It is found only where no letter or digit touches it.
    """

    id: int
    content: str
    special: bool
    strips_left: bool = False
    strips_right: bool = False
    single_word: bool = False

    @property
    def is_markup(self) -> bool:
        """Whether it is structure: a control token, or one that looks like it (`<think>`)."""
        return self.special or (self.content.startswith("<") and self.content.endswith(">"))


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Everything about one checkpoint's tokenizer.

    Args:
        path: The file it stands in.
        added_tokens: All added tokens.
        vocab_size: One more than the highest id.
        prefix_ids: Ids every text begins with; empty when the model wants none.
        build: Returns a fresh `tokenizers.Tokenizer`. Raises CheckpointError, UnsupportedModel.
        build_later: The same for text that does not begin the prompt, where that differs.
        byte_level: Tokens are spelled in the byte alphabet of GPT-2; else with `▁` for a space
            and `<0x0A>` for a byte.
        strips_first_space: Decoding drops one space from the start of a text.
    """

    path: Path
    added_tokens: tuple[AddedToken, ...]
    vocab_size: int
    prefix_ids: tuple[int, ...]
    build: Callable[[], tokenizers.Tokenizer]
    build_later: Callable[[], tokenizers.Tokenizer] | None = None
    byte_level: bool = True
    strips_first_space: bool = False

    def fail(self, problem: str) -> CheckpointError:
        """Return the error for tokenizer data that cannot be used."""
        return CheckpointError(
            f"{self.path}: {problem}",
            path=self.path,
            hint="the file is damaged; pull or copy the model again",
        )
