"""A file that is replaced is the old one or the new one, and leaves nothing beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colibri_cli.whole_files import make_own, write_whole
from colibri_engine.loader.durable import make_own as make_own_of_engine


def test_a_file_and_its_directory_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_whole(path, "ä\n", mode=0o600)
    assert path.read_bytes() == "ä\n".encode()
    assert list(path.parent.iterdir()) == [path]
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_gets_the_mode_that_is_asked_for_or_the_usual_one(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("no such modes")
    path = tmp_path / "a"
    before = os.umask(0o027)
    try:
        write_whole(path, "1", mode=0o664)
        assert path.stat().st_mode & 0o777 == 0o664
        write_whole(path, "2")
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    assert path.read_text() == "2"


@pytest.mark.parametrize("make", [make_own, make_own_of_engine])
def test_no_directory_that_is_made_is_left_to_the_umask(
    tmp_path: Path, make: Callable[..., None]
) -> None:
    if sys.platform == "win32":
        pytest.skip("no such modes")
    before = os.umask(0)
    try:
        make(tmp_path / "a" / "b")
        make(tmp_path / "a" / "shown" / "c", 0o755)
        make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o700, "b": 0o700, "shown": 0o755, "c": 0o755}
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make(tmp_path / "file")


def test_what_cannot_be_written_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def fails(_self: Path, _target: Path) -> Path:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="Input/output"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
