"""Text to token ids and back, over the `tokenizers` package.

A prompt is a list of segments: in CONTROL segments the model's special tokens are recognised, in
TEXT segments everything is only text, so nothing a person writes can become structure. Plain text
on both sides of a segment border is cut as one, as the reference tokenizer would.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import BadOption, ColibriError
from colibri_engine.loader.tokenizer_source import AddedToken
from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers

    from colibri_engine.loader.tokenizer_source import TokenizerSource

# What a token that "strips" swallows: Unicode White_Space.
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_TRIAL: Final = "A 0\u00e9\n<>"  # encoded once, so that a fault shows at the start
_BYTE_TOKEN: Final = re.compile("<0x([0-9A-Fa-f]{2})>")
_SPACE: Final = "\u2581"  # how tokenizers without a byte alphabet spell a space


class Tokenizer:
    """Encodes prompts and decodes ids of one model. Not changed after construction.

    Args:
        source: What the checkpoint says about its tokenizer.

    Raises:
        CheckpointError: the tokenizer data contradicts itself.
        UnsupportedModel: its kind is not implemented.
    """

    def __init__(self, source: TokenizerSource) -> None:
        with _faults_of(source):
            self._inner = source.build()
            self._later = source.build_later() if source.build_later is not None else self._inner
            for inner in (self._inner, self._later):
                _hide_markup(inner, source.added_tokens)
                inner.encode(_TRIAL, add_special_tokens=False)
        self._added = {token.id: token for token in source.added_tokens}
        self._check_added(source)
        self._byte_level = source.byte_level
        self._strips_first_space = source.strips_first_space
        self._prefix_ids = list(source.prefix_ids)
        self._marks = {token.content: token for token in source.added_tokens if token.is_markup}
        self._mark_pattern = _alternatives(list(self._marks.values()))
        self._bytes: dict[int, bytes] = {}
        self._mark_ids = {token.id for token in self._marks.values()}
        self.vocab_size = source.vocab_size

    @property
    def special_tokens(self) -> dict[str, int]:
        """Text and id of every control token."""
        return {token.content: token.id for token in self._added.values() if token.special}

    def encode(self, segments: Iterable[Segment], *, add_prefix: bool = True) -> list[int]:
        """Return the ids of a prompt; nothing is ever cut off.

        Args:
            segments: Control and text parts in order.
            add_prefix: Put the ids that begin every text in front, unless they are there.
        """
        ids: list[int] = []
        for piece in self._pieces(segments):
            if isinstance(piece, AddedToken):
                ids.append(piece.id)
            else:
                ids += self._encode_plain(piece, self._later if ids else self._inner)
        prefix = self._prefix_ids
        if add_prefix and prefix and ids[: len(prefix)] != prefix:
            return prefix + ids
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of plain text, without what begins a prompt."""
        return self.encode([Segment(SegmentKind.TEXT, text)], add_prefix=False)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Return the text of ids; invalid bytes become U+FFFD, a cut-off last character is lost.

        Raises:
            BadOption: an id is outside the vocabulary.
        """
        decoder = self.decoder(skip_special=skip_special, starts_text=True)
        return "".join([*map(decoder.feed, ids), decoder.flush()])

    def decoder(self, *, skip_special: bool = False, starts_text: bool = False) -> StreamDecoder:
        """Return a decoder for one stream of ids.

        Args:
            skip_special: Leave control tokens out.
            starts_text: The ids begin a text; those of a reply go on after the prompt.
        """
        strips = starts_text and self._strips_first_space
        return StreamDecoder(self, skip_special=skip_special, strips_first_space=strips)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes one token stands for; they may end inside a character.

        Raises:
            BadOption: the id is outside the vocabulary.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._find_bytes(token_id)
        return known

    def has(self, token_id: int) -> bool:
        """Return whether an id stands for something."""
        return token_id in self._added or self._inner.id_to_token(token_id) is not None

    def is_special(self, token_id: int) -> bool:
        """Return whether an id is a control token."""
        added = self._added.get(token_id)
        return added is not None and added.special

    def check_ids(self, name: str, ids: Iterable[int]) -> None:
        """Refuse ids outside the vocabulary.

        Args:
            name: What they are called in the message.
            ids: The ids.

        Raises:
            BadOption: one is outside.
        """
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise BadOption(name, f"{token_id} is not a token id (0..{self.vocab_size - 1})")

    def _encode_plain(self, text: str, inner: tokenizers.Tokenizer) -> list[int]:
        """Return the ids of text that holds no structure, whatever it spells."""
        ids: list[int] = inner.encode(text, add_special_tokens=False).ids
        if self._mark_ids.isdisjoint(ids):
            return ids
        # The vocabulary holds a structure token as an ordinary entry: spell that one out.
        spelled: list[int] = []
        for token_id in ids:
            if token_id not in self._mark_ids:
                spelled.append(token_id)
                continue
            for character in self._added[token_id].content:
                spelled += self._later.encode(character, add_special_tokens=False).ids
        if not self._mark_ids.isdisjoint(spelled):
            raise BadOption(
                "prompt", "part of its text exists in this model as a control token only"
            )
        return spelled

    def _pieces(self, segments: Iterable[Segment]) -> list[str | AddedToken]:
        """Return structure tokens and, joined, the plain text between them; none is empty."""
        pieces: list[str | AddedToken] = []
        run: list[str] = []
        strips = False  # the structure token before swallows white space

        def end_run(token: AddedToken | None) -> None:
            text = "".join(run)
            run.clear()
            if strips:
                text = text.lstrip(_WHITE_SPACE)
            if token is not None and token.strips_left:
                text = text.rstrip(_WHITE_SPACE)
            if text:
                pieces.append(text)

        for segment in segments:
            if segment.kind is SegmentKind.TEXT or self._mark_pattern is None:
                run.append(segment.text)
                continue
            position = 0
            for match in self._mark_pattern.finditer(segment.text):
                run.append(segment.text[position : match.start()])
                position = match.end()
                token = self._marks[match.group()]
                end_run(token)
                pieces.append(token)
                strips = token.strips_right
            run.append(segment.text[position:])
        end_run(None)
        return pieces

    def _find_bytes(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return added.content.encode()
        text = self._inner.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if text is None:
            raise BadOption("token id", f"{token_id} is outside the vocabulary")
        if self._byte_level:
            try:
                return bytes(_BYTES[character] for character in text)
            except KeyError:
                return text.encode()  # an entry outside the byte alphabet stands for itself
        byte = _BYTE_TOKEN.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace(_SPACE, " ").encode()

    def _check_added(self, source: TokenizerSource) -> None:
        """Refuse added tokens whose ids the package would not keep."""
        for token in source.added_tokens:
            if self._inner.token_to_id(token.content) != token.id:
                raise source.fail(
                    f"the added token {token.content[:40]!r} cannot have the id {token.id}"
                )


class StreamDecoder:
    """Turns one stream of ids into whole characters.

    Args:
        tokenizer: The tokenizer.
        skip_special: Leave control tokens out.
        strips_first_space: Drop one space from the start.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special: bool, strips_first_space: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._strips_first_space = strips_first_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the characters completed by one more id.

        Raises:
            BadOption: the id is outside the vocabulary.
        """
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        text = self._utf8.decode(self._tokenizer.token_bytes(token_id))
        if self._strips_first_space and text:
            self._strips_first_space = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """End the stream: the first bytes of a character that never came are dropped."""
        self._utf8.reset()
        return ""


def _byte_alphabet() -> dict[str, int]:
    """Return the characters in which byte-level tokens spell bytes.

    Printable ones stand for themselves, the rest follow from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    alphabet = {chr(byte): byte for byte in visible}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(hidden))
    return alphabet


_BYTES: Final = _byte_alphabet()


@contextlib.contextmanager
def _faults_of(source: TokenizerSource) -> Iterator[None]:
    """Turn whatever the package raises for data it cannot use into an error of ours."""
    try:
        yield
    except ColibriError:
        raise
    except BaseException as exc:
        # Its native code raises plain Exception, and for a failed assertion of its own
        # PanicException, which is no Exception and has no importable name.
        if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
            raise
        problem = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
        raise source.fail(f"it cannot be used: {problem!a}") from exc


def _hide_markup(inner: tokenizers.Tokenizer, added: Sequence[AddedToken]) -> None:
    """Make the package leave structure tokens alone: this module finds them itself."""
    import tokenizers

    inner.encode_special_tokens = True  # the package's odd name for "spell them out"
    inner.add_special_tokens(
        [
            tokenizers.AddedToken(
                token.content,
                lstrip=token.strips_left,
                rstrip=token.strips_right,
                single_word=token.single_word,
                normalized=False,
                special=True,
            )
            for token in added
            if token.is_markup and not token.special
        ]
    )


def _alternatives(tokens: Sequence[AddedToken]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of the tokens, the longest first."""
    if not tokens:
        return None
    ordered = sorted(tokens, key=lambda token: len(token.content), reverse=True)
    return re.compile(
        "|".join(
            rf"(?<!\w){re.escape(token.content)}(?!\w)"
            if token.single_word
            else re.escape(token.content)
            for token in ordered
        )
    )
