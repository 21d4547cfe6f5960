"""From `tokenizer.json` and the files beside it to a tokenizer, validated first.

The `tokenizers` package does the work; what it would accept but must not be trusted (negative or
huge ids, merges outside the vocabulary) is refused here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.loader.base import SpecialTokens
from colibri_engine.loader.json_file import is_there, parse_json, read_json, read_whole, shown
from colibri_engine.loader.tokenizer_source import MAX_TOKEN_ID, AddedToken, TokenizerSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import tokenizers

_MAX_TOKENIZER_BYTES: Final = 1 << 30
_MAX_CONFIG_BYTES: Final = 256 << 20
_MAX_TEMPLATE_BYTES: Final = 16 << 20
_CONFIG: Final = "tokenizer_config.json"
_SPECIAL_MAP: Final = "special_tokens_map.json"
_ALWAYS_END: Final = "<|endoftext|>"
_SEQUENCES: Final = ("decoders", "processors", "pretokenizers")


class TokenizerFiles:
    """The tokenizer files of one model directory.

    Args:
        directory: The directory.

    Raises:
        CheckpointError: a file is missing, damaged or contradicts itself.
        UnsupportedModel: the kind of tokenizer is not implemented.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "tokenizer.json"
        if not is_there(self._path):
            kind = "only tokenizer.model" if (directory / "tokenizer.model").exists() else "none"
            raise CheckpointError(
                f"{directory} has no tokenizer.json ({kind} found)",
                path=self._path,
                hint="pull the model again; a tokenizer.model alone must be converted",
            )
        self._data = read_whole(self._path, _MAX_TOKENIZER_BYTES)
        self._body = parse_json(self._data, self._path, self._path.name)
        self._config = _optional_json(directory / _CONFIG)
        # Where the configuration does not say what a control token is, this may.
        self._special_map = _optional_json(directory / _SPECIAL_MAP)
        self._template_file = directory / "chat_template.jinja"
        self.added_tokens = self._read_added_tokens()
        self._max_id = self._check_model()
        self._ids = {token.content: token.id for token in self.added_tokens}

    def source(self) -> TokenizerSource:
        """Return what a tokenizer is built from."""
        steps = list(_steps(self._body.get("decoder")))
        kinds = {str(step.get("type"))[:40] for step in steps}
        byte_level = "ByteLevel" in kinds
        if not byte_level and not kinds & {"ByteFallback", "Metaspace"}:
            raise UnsupportedModel(
                f"{self._path} decodes by {', '.join(map(repr, sorted(kinds))) or 'nothing'}, "
                "which is not supported",
                hint="supported: byte-level and byte-fallback tokenizers",
            )
        return TokenizerSource(
            path=self._path,
            added_tokens=self.added_tokens,
            vocab_size=1 + max(self._max_id, *(token.id for token in self.added_tokens), 0),
            prefix_ids=self._prefix_ids(),
            build=self._build,
            build_later=self._build_later if self._prepends_first_only() else None,
            byte_level=byte_level,
            strips_first_space=not byte_level and _strips_first_space(steps),
        )

    def special_tokens(
        self, config: Mapping[str, Any], generation_config: Mapping[str, Any]
    ) -> SpecialTokens:
        """Return the beginning and end tokens: all sources of end tokens together.

        Raises:
            CheckpointError: an id is out of range.
        """
        bos_token, eos_token = self._token_text("bos_token"), self._token_text("eos_token")
        ends: set[int] = set()
        for source in (config, generation_config):
            ends.update(self._end_ids(source.get("eos_token_id")))
        for text in (eos_token, _ALWAYS_END):
            if text is not None and text in self._ids:
                ends.add(self._ids[text])
        bos_id = self._ids.get(bos_token) if bos_token is not None else None
        if bos_token is None:
            bos_ids = self._end_ids(config.get("bos_token_id"))
            contents = {token.id: token.content for token in self.added_tokens}
            if bos_ids and bos_ids[0] in contents:
                bos_id, bos_token = bos_ids[0], contents[bos_ids[0]]
        return SpecialTokens(bos_token, eos_token, bos_id, tuple(sorted(ends)))

    def chat_template(self) -> str | None:
        """Return the chat template: its own file first, else the one named "default"."""
        if is_there(self._template_file):
            data = read_whole(self._template_file, _MAX_TEMPLATE_BYTES)
            try:
                return data.decode()
            except UnicodeDecodeError as exc:
                raise CheckpointError(
                    f"{self._template_file} is not UTF-8",
                    path=self._template_file,
                    hint="the file is damaged; pull or copy the model again",
                ) from exc
        found = self._config.get("chat_template")
        if isinstance(found, list):
            if not all(map(_is_template, found)):
                raise self._fail("its chat_template is not a list of names and templates", _CONFIG)
            found = next((item["template"] for item in found if item["name"] == "default"), None)
        if found is not None and not isinstance(found, str):
            raise self._fail(f"its chat_template is {shown(found, 40)}, not text", _CONFIG)
        return found

    def _read_added_tokens(self) -> tuple[AddedToken, ...]:
        found = self._body.get("added_tokens", [])
        if not isinstance(found, list):
            raise self._fail("added_tokens is not a list")
        tokens = []
        for item in found:
            if not _is_object(item) or not isinstance(item.get("content"), str):
                raise self._fail("an added token has no content")
            self._check_id(item.get("id"), item["content"])
            if not item["content"]:
                raise self._fail("an added token is empty")
            tokens.append(
                AddedToken(
                    item["id"],
                    item["content"],
                    special=item.get("special") is True,
                    strips_left=item.get("lstrip") is True,
                    strips_right=item.get("rstrip") is True,
                    single_word=item.get("single_word") is True,
                )
            )
        return tuple(tokens)

    def _check_model(self) -> int:
        """Check the model and return its highest id."""
        model = self._body.get("model")
        if not _is_object(model):
            raise self._fail("it has no model")
        kind = model.get("type", "BPE" if "merges" in model else None)
        if kind == "BPE":
            return self._check_bpe(model)
        if kind == "Unigram":
            return self._check_unigram(model)
        raise UnsupportedModel(
            f"{self._path} is a tokenizer of the kind {str(kind)[:40]!r}, which is not supported",
            hint="supported: BPE and Unigram",
        )

    def _check_bpe(self, model: Mapping[str, Any]) -> int:
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise UnsupportedModel(
                    f"{self._path} sets {key}, which is not supported",
                    hint="supported: byte-level and byte-fallback tokenizers",
                )
        vocab, merges = model.get("vocab"), model.get("merges")
        if not _is_object(vocab) or not isinstance(merges, list):
            raise self._fail("its model has no vocab or merges")
        for token, token_id in vocab.items():
            self._check_id(token_id, token)
        for merge in merges:
            pair = merge.split(" ", 1) if isinstance(merge, str) else merge
            if (
                not isinstance(pair, list)
                or len(pair) != 2
                or not all(isinstance(part, str) and part in vocab for part in pair)
                or pair[0] + pair[1] not in vocab
            ):
                raise self._fail(f"the merge {str(merge)[:60]!r} is not a pair of known tokens")
        return max(vocab.values(), default=0)

    def _check_unigram(self, model: Mapping[str, Any]) -> int:
        vocab = model.get("vocab")
        if not isinstance(vocab, list) or not 0 < len(vocab) <= MAX_TOKEN_ID:
            raise self._fail("its model has no vocab")
        for item in vocab:
            if (
                not isinstance(item, list)
                or len(item) != 2
                or not isinstance(item[0], str)
                or isinstance(item[1], bool)
                or not isinstance(item[1], int | float)
            ):
                raise self._fail("a vocabulary entry is not a token with its score")
        return len(vocab) - 1

    def _check_id(self, token_id: object, token: str) -> None:
        if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:
            raise self._fail(
                f"the token {token[:40]!r} has the id {shown(token_id, 40)}, "
                f"not one of 0 to {MAX_TOKEN_ID}"
            )

    def _end_ids(self, value: object) -> list[int]:
        ids: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
        for token_id in ids:
            if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:
                raise CheckpointError(
                    f"{self._path.parent} names the token id {shown(token_id, 40)}, "
                    f"not one of 0 to {MAX_TOKEN_ID}",
                    path=self._path.parent,
                    hint="check config.json and generation_config.json",
                )
        return ids

    def _token_text(self, key: str) -> str | None:
        for name, body in ((_CONFIG, self._config), (_SPECIAL_MAP, self._special_map)):
            found = body.get(key)
            text = found.get("content") if _is_object(found) else found
            if isinstance(text, str):
                return text
            if found is not None:
                raise self._fail(f"its {key} is {shown(found, 40)}, not text", name)
        return None

    def _prefix_ids(self) -> tuple[int, ...]:
        """Return the ids the post-processor puts before a text."""
        wanted = self._config.get("add_bos_token")
        if wanted is False:
            return ()
        for step in _steps(self._body.get("post_processor")):
            if step.get("type") == "TemplateProcessing":
                return self._template_prefix(step)
        bos = self._ids.get(self._token_text("bos_token") or "")
        return (bos,) if wanted is True and bos is not None else ()

    def _template_prefix(self, step: Mapping[str, Any]) -> tuple[int, ...]:
        prefix: list[int] = []
        parts = step.get("single")
        for part in parts if isinstance(parts, list) else []:
            special = part.get("SpecialToken") if _is_object(part) else None
            if not _is_object(special):
                break
            token = special.get("id")
            if not isinstance(token, str) or token not in self._ids:
                raise self._fail(f"its post-processor names the unknown token {str(token)[:40]!r}")
            prefix.append(self._ids[token])
        return tuple(prefix)

    def _prepends_first_only(self) -> bool:
        step = self._body.get("pre_tokenizer")
        return (
            _is_object(step)
            and step.get("type") == "Metaspace"
            and step.get("prepend_scheme") == "first"
        )

    def _build(self) -> tokenizers.Tokenizer:
        return self._load(self._data)

    def _build_later(self) -> tokenizers.Tokenizer:
        """Build the variant for text that does not begin the prompt: no space is prepended."""
        step = self._body["pre_tokenizer"]
        assert _is_object(step)
        step = {**step, "prepend_scheme": "never"}
        return self._load(json.dumps({**self._body, "pre_tokenizer": step}).encode())

    def _load(self, data: bytes) -> tokenizers.Tokenizer:
        import tokenizers

        return tokenizers.Tokenizer.from_buffer(data)

    def _fail(self, problem: str, name: str | None = None) -> CheckpointError:
        path = self._path if name is None else self._path.with_name(name)
        return CheckpointError(
            f"{path}: {problem}",
            path=path,
            hint="the file is damaged; pull or copy the model again",
        )


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_template(value: object) -> TypeGuard[dict[str, str]]:
    keys = ("name", "template")
    return _is_object(value) and all(isinstance(value.get(key), str) for key in keys)


def _optional_json(path: Path) -> dict[str, object]:
    return read_json(path, _MAX_CONFIG_BYTES) if is_there(path) else {}


def _steps(node: object) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a pipeline description, nested sequences opened."""
    if not _is_object(node):
        return
    inner = next((node[key] for key in _SEQUENCES if isinstance(node.get(key), list)), None)
    if node.get("type") == "Sequence" and inner is not None:
        for step in inner:
            yield from _steps(step)
    else:
        yield node


def _strips_first_space(steps: list[Mapping[str, Any]]) -> bool:
    for step in steps:
        if step.get("type") == "Strip" and step.get("content") == " ":
            return bool(step.get("start"))
        if step.get("type") == "Metaspace":
            return bool(step.get("prepend_scheme", "always") != "never")
    return False
