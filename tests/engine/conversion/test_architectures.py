"""Every architecture that can be run can be converted, and means the same afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: scripts/setup oracle")
pytest.importorskip(
    "transformers", reason="transformers is not installed; run: scripts/setup oracle"
)

from colibri_engine.conversion.options import Layout
from colibri_engine.errors import BadChoice
from colibri_engine.models.registry import MODULES
from tests.engine.conversion.rig import convert, logits, options, values, write_weights
from tests.fakes.oracle_models import CONFIGS, build_only

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle

IDS = np.array([5, 9, 17, 4, 200, 31, 8, 8, 90, 12, 3, 77], np.int32)
STREAM_ONLY = "inkling"  # the shapes of its layers do not follow from sizes alone
MAX_LOGIT_DIFFERENCE = 1e-4


def test_every_architecture_is_among_the_models() -> None:
    families = {name.partition("-")[0] for name in CONFIGS}
    missing = {module for module in MODULES.values() if module not in families}
    assert not missing


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_container_runs_as_its_own_values_do(tmp_path: Path, name: str) -> None:
    build_only(name, tmp_path / "source")
    if name.startswith(STREAM_ONLY):
        with pytest.raises(BadChoice, match="--layout pairs is not possible: the shape of"):
            convert(tmp_path / "source", tmp_path / "refused", options(Layout.PAIRS))
        assert not (tmp_path / "refused").exists()
    is_variant = "-" in name  # what differs there is no matter of the layout
    is_plain = not (is_variant or name.startswith(STREAM_ONLY))
    layouts = [*Layout] if is_plain else [Layout.STREAM]
    found = {}
    for layout in layouts:
        convert(tmp_path / "source", tmp_path / layout, options(layout))
        found[layout] = values(tmp_path / layout)
    for tensor, array in found[Layout.STREAM].items():
        for layout in layouts:
            np.testing.assert_array_equal(array, found[layout][tensor], err_msg=tensor)
    config = json.loads((tmp_path / Layout.STREAM / "config.json").read_text())
    plain = write_weights(tmp_path / "plain", config, found[Layout.STREAM])
    wanted = logits(plain.path, IDS)
    assert np.isfinite(wanted).all()
    for layout in layouts:
        difference = np.abs(logits(tmp_path / layout, IDS) - wanted).max()
        assert difference <= MAX_LOGIT_DIFFERENCE
