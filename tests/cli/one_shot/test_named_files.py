"""Files that `coli run` is pointed to: what cannot be used is one line with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.backends.base import Generation
from colibri_cli.chat.attaching_files import read_file
from colibri_cli.errors import UsageError
from colibri_cli.one_shot.constraint import constrained


def read_schema(name: str) -> Generation:
    return constrained(Generation(), name, None)


def read_grammar(name: str) -> Generation:
    return constrained(Generation(), None, name)


READERS: dict[str, Callable[[str], Any]] = {
    "--schema": read_schema,
    "--grammar": read_grammar,
    "--file": read_file,
}
REMEDIES = {"--schema": "a JSON schema", "--grammar": "GBNF", "--file": "a text file"}


@pytest.mark.parametrize("flag", READERS)
@pytest.mark.parametrize("name", ["gone", "folder", "a\0b", "x" * 5000])
def test_what_cannot_be_read_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as caught:
        READERS[flag](name)
    assert REMEDIES[flag] in str(caught.value.hint)


@pytest.mark.parametrize("flag", READERS)
def test_the_home_of_nobody_has_a_remedy(flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        READERS[flag]("~nobody-here/x")
    assert caught.value.hint


@pytest.mark.parametrize("flag", ["--schema", "--grammar"])
@pytest.mark.parametrize("content", [b"", b" \n", b"\xff", b"x" * ((1 << 20) + 1)])
def test_what_holds_nothing_of_the_kind_has_a_remedy(
    tmp_path: Path, flag: str, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        READERS[flag](str(tmp_path / "file"))
    assert REMEDIES[flag] in str(caught.value.hint)


@pytest.mark.parametrize("text", ["{", '{"type": }'])
def test_a_schema_that_is_no_json_has_a_remedy(text: str) -> None:
    with pytest.raises(UsageError, match="--schema is no JSON") as caught:
        read_schema(text)
    assert '{"type": "object"' in str(caught.value.hint)
