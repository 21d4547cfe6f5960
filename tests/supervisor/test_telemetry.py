"""What is kept of the figures an engine sends."""

from __future__ import annotations

import pytest

from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.messages import ModelInfo


@pytest.mark.parametrize(
    ("facts", "layers", "has_draft_row"),
    [
        ({"mixture_layers": [3, 4], "draft_layer": None}, (3, 4), False),
        ({"mixture_layers": [3, 4], "draft_layer": 78}, (3, 4, 78), True),
        ({"mixture_layers": []}, (), False),
        ({"mixture_layers": "all"}, (), False),
        ({"mixture_layers": [3, "4"]}, (), False),
        ({}, (), False),
    ],
)
def test_the_layers_of_the_map_are_what_the_engine_says(
    facts: dict[str, object], layers: tuple[int, ...], has_draft_row: bool
) -> None:
    telemetry = Telemetry()
    assert not telemetry.feed(ModelInfo(facts))  # the client needs it too
    assert (telemetry.map_layers, telemetry.has_draft_row) == (layers, has_draft_row)
    telemetry.forget_engine()
    assert (telemetry.map_layers, telemetry.has_draft_row) == ((), False)
