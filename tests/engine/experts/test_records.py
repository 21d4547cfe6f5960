"""Every streamed expert is found where its record lies."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.experts.records import RecordTable
from colibri_engine.loader.base import StreamedCheckpoint
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.tiles import PackedTensor
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    return restream(write_container(directory / "container").path, directory / "stream")


def test_a_record_holds_the_three_matrices_of_its_expert(stream: Path) -> None:
    with closing(open_checkpoint(stream)) as checkpoint:
        assert isinstance(checkpoint, StreamedCheckpoint)
        table = RecordTable.of(checkpoint.stored_experts())
        assert table.layers
        for prefix, layer in table.layers.items():
            assert prefix == layer.prefix
            for expert, place in enumerate(layer.places):
                data = table.paths[place.file].read_bytes()[place.offset :][: layer.nbytes]
                assert len(data) == layer.nbytes
                for part, packed in layer.record.parts.items():
                    tensor = checkpoint.tensor(f"{prefix}.{expert}.{part}.weight")
                    assert isinstance(tensor, PackedTensor)
                    found = data[packed.offset : packed.end]
                    assert found == np.asarray(tensor.packed).tobytes()


def test_other_layouts_have_no_records(tmp_path: Path) -> None:
    with closing(open_checkpoint(write_container(tmp_path / "model").path)) as checkpoint:
        assert isinstance(checkpoint, StreamedCheckpoint)
        assert not checkpoint.stored_experts()
