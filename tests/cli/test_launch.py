"""How settings become the limits of a server, and what happens when it is ready."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, cast

import pytest

from colibri_cli.gateway import extensions, serving, serving_text
from colibri_cli.gateway.limits import Limits
from colibri_cli.launch import ServeOptions, _limits, _serving
from colibri_protocol.errors import SettingsError
from colibri_protocol.settings import resolve
from tests.fakes.supervised import run_async

if TYPE_CHECKING:
    from colibri_cli.backends.base import ModelCard


def limits(**environ: str) -> Limits:
    return _limits(resolve({}, environ, {}))


def test_limits_that_nobody_set() -> None:
    usual = limits()
    assert (usual.max_connections, usual.max_connections_per_address) == (2048, 64)
    assert usual.is_loopback_exempt
    assert (usual.head_s, usual.body_s, usual.idle_s) == (30.0, 30.0, 30.0)
    assert usual.max_body_bytes == 4 * 1024 * 1024


def test_one_address_can_fill_slots_and_queue() -> None:
    few = limits(COLI_KV_SLOTS="16", COLI_MAX_QUEUE="200")
    assert few.max_connections_per_address == 16 + 200 + 8


def test_limits_from_the_environment() -> None:
    given = limits(
        COLI_MAX_CONNECTIONS="10",
        COLI_MAX_CONNECTIONS_PER_IP="3",
        COLI_READ_DEADLINE="2.5",
        COLI_MAX_BODY_MIB="64",
    )
    assert (given.max_connections, given.max_connections_per_address) == (10, 3)
    assert not given.is_loopback_exempt  # whoever sets a limit means it for everybody
    assert (given.head_s, given.body_s, given.idle_s) == (2.5, 2.5, 2.5)
    assert given.max_body_bytes == 64 * 1024 * 1024


@pytest.mark.parametrize(
    "name", ["COLI_MAX_CONNECTIONS", "COLI_MAX_CONNECTIONS_PER_IP", "COLI_READ_DEADLINE"]
)
@pytest.mark.parametrize("value", ["0", "-1", "many", "nan"])
def test_what_is_no_limit_stops_the_start(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        limits(**{name: value})


def test_what_was_loaded_is_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(serving, "ServerRun", lambda _maker, plan: plan)
    monkeypatch.setattr(serving_text, "ready_text", lambda *_: "")

    async def run(plan: serving.ServePlan, _sinks: object) -> None:
        assert not done
        plan.on_ready(cast("serving.ServerRun", None), cast("ModelCard", None))

    monkeypatch.setattr(extensions, "run_with_sinks", run)
    run_async(lambda: _serving(ServeOptions(), resolve({}, {}, {}), None, None, has_panel=False))
    assert done == ["frozen"]
