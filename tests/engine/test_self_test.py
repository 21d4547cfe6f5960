"""The self-test of the kernels: what it compares, and that a difference is found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from colibri_engine import kernels
from colibri_engine.config import read_isa
from colibri_engine.errors import ColibriError
from colibri_engine.jobs import main
from colibri_engine.jobs.self_test import differences, results

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _isa() -> Iterator[None]:
    before = kernels.active_isa()
    yield
    kernels.set_isa(before)


def test_the_build_has_what_this_processor_runs_in_the_same_order() -> None:
    available = kernels.available_isas()
    assert [name for name in kernels.built_isas() if name in available] == available
    assert kernels.built_isas()[-1] == "scalar"


def test_the_processors_variants_pass(capsys: pytest.CaptureFixture[str]) -> None:
    for name in kernels.available_isas():
        assert main(["self-test", name]) == 0
        word, _, text = capsys.readouterr().out.partition(" ")
        assert word == "RESULT"
        assert json.loads(text)["compared"] > 50
        assert json.loads(text)["differing"] == []


def test_every_kind_of_weight_is_compared_and_one_bit_is_a_difference() -> None:
    found = results()
    kinds = {name.split()[0].rstrip(",") for name in found}
    assert kinds == {"int4", "int8", "f32", "f16", "bf16", "norm", "expert"}
    assert differences(results(), found) == []
    name = "int4 fast, 9x224 by 80"
    changed = bytearray(found[name])
    changed[0] ^= 1
    assert differences(found, {**found, name: bytes(changed)}) == [name]


def test_a_variant_that_is_not_here_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    missing = "neon" if "neon" not in kernels.built_isas() else "avx2"
    assert main(["self-test", missing]) != 0
    assert "ERROR kernel_unavailable" in capsys.readouterr().out


def test_the_wanted_variant_is_read_without_a_model() -> None:
    assert read_isa({}) is None
    assert read_isa({"COLI_ISA": "scalar", "CTX": "nonsense"}) == "scalar"
    with pytest.raises(ColibriError, match="COLI_ISA"):
        read_isa({"COLI_ISA": "nothing"})
