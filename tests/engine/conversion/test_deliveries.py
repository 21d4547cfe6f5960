"""Source files that arrive late: planned from headers, waited for, compared, given back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from colibri_engine.conversion.convert import Conversion
from colibri_engine.errors import CheckpointError, ConversionError
from colibri_engine.jobs.base import JobOutput, LineCarrier
from colibri_engine.loader.arriving_files import read_descriptions
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.loader.safetensors import SafetensorsFile
from tests.engine.conversion.rig import Told, convert, options, weight_files, write_source


class Courier:
    """Brings files from one directory into another when they are waited for."""

    def __init__(self, depot: Path, target: Path) -> None:
        self.depot = depot
        self.target = target
        self.wanted: list[str] = []
        self.released: list[str] = []

    def want(self, name: str) -> None:
        if name not in self.wanted:
            self.wanted.append(name)

    def wait(self, name: str) -> None:
        self.want(name)
        shutil.copy(self.depot / name, self.target / name)

    def release(self, name: str) -> None:
        self.released.append(name)
        (self.target / name).unlink()


def describe(path: Path) -> dict[str, Any]:
    file = SafetensorsFile(path)
    file.close()
    tensors = {
        name: {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [entry.offset, entry.offset + entry.nbytes],
        }
        for name, entry in file.entries.items()
    }
    return {"size": file.size, "metadata": file.metadata, "tensors": tensors}


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    return write_source(tmp_path / "depot", "F8_E4M3").path


def announce(depot: Path, target: Path) -> None:
    """Bring everything but weights, and a list of those."""
    target.mkdir()
    for path in depot.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, target / path.name)
    listed = {path.name: describe(path) for path in depot.glob("*.safetensors")}
    (target / "list.json").write_text(json.dumps(listed))


def test_the_result_is_that_of_files_that_were_there(tmp_path: Path, depot: Path) -> None:
    announce(depot, tmp_path / "arriving")
    courier = Courier(depot, tmp_path / "arriving")
    files = read_descriptions(tmp_path / "arriving" / "list.json", courier.wait)
    checkpoint = HfCheckpoint(tmp_path / "arriving", files)
    chosen = options(shard_bytes=40_000)
    conversion = Conversion(checkpoint, tmp_path / "out", chosen, courier)
    assert courier.wanted == []
    conversion.run(Told())
    checkpoint.close()
    convert(depot, tmp_path / "wanted", chosen)
    assert weight_files(tmp_path / "out") == weight_files(tmp_path / "wanted")
    assert sorted(courier.wanted) == [path.name for path in sorted(depot.glob("*.safetensors"))]
    assert sorted(courier.released) == sorted(courier.wanted)
    assert not list((tmp_path / "arriving").glob("*.safetensors"))


def test_a_file_that_is_not_the_announced_one_is_refused(tmp_path: Path, depot: Path) -> None:
    announce(depot, tmp_path / "arriving")
    other = write_source(tmp_path / "other", "F8_E4M3", vocab_size=400).path
    courier = Courier(other, tmp_path / "arriving")
    files = read_descriptions(tmp_path / "arriving" / "list.json", courier.wait)
    checkpoint = HfCheckpoint(tmp_path / "arriving", files)
    with pytest.raises(CheckpointError, match="is not the file that was announced"):
        Conversion(checkpoint, tmp_path / "out", options(), courier).run(Told())
    checkpoint.close()
    assert not weight_files(tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("size"),
        lambda body: body.update(tensors=3),
        lambda body: body.update(metadata=None),
        lambda body: next(iter(body["tensors"].values())).update(dtype="F7"),
        lambda body: next(iter(body["tensors"].values())).update(shape=[1]),
    ],
)
def test_a_damaged_list_is_refused(tmp_path: Path, depot: Path, change: Any) -> None:  # noqa: ANN401
    announce(depot, tmp_path / "arriving")
    path = tmp_path / "arriving" / "list.json"
    body = json.loads(path.read_text())
    change(next(iter(body.values())))
    path.write_text(json.dumps(body))
    with pytest.raises(CheckpointError, match="damaged"):
        read_descriptions(path, lambda name: None)


def test_files_are_asked_for_on_lines_and_answered_on_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import io

    answers = io.StringIO("HAVE a\nLOST b the hub is away\nnonsense\n")
    carrier = LineCarrier(JobOutput(), answers)
    carrier.wait("a")
    carrier.want("a")
    with pytest.raises(ConversionError, match="b could not be fetched: the hub is away"):
        carrier.wait("b")
    with pytest.raises(ConversionError, match="c could not be fetched: nobody brings"):
        carrier.wait("c")
    carrier.release("a")
    assert capsys.readouterr().out.splitlines() == ["NEED a", "NEED b", "NEED c", "DONE a"]
