"""What `--what-if` understands."""

from __future__ import annotations

import pytest

from colibri_cli.errors import UsageError
from colibri_cli.planning.what_if import WhatIf
from colibri_protocol.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("ram=64", {"ram_bytes": 64e9}),
        ("ram=64GB", {"ram_bytes": 64e9}),
        ("ram=1.5tb", {"ram_bytes": 1.5e12}),
        ("ram=500M", {"ram_bytes": 500e6}),
        ("disk=7GB/s", {"disk_bytes_per_s": 7e9}),
        ("disk=7", {"disk_bytes_per_s": 7e9}),
        ("memory=80GB/s, disk=550MB/s", {"memory_bytes_per_s": 80e9, "disk_bytes_per_s": 550e6}),
    ],
)
def test_amounts(text: str, amounts: dict[str, float]) -> None:
    found = WhatIf.parse(text)
    assert found.amounts == pytest.approx(amounts)
    assert found.environment == {}


def test_settings_go_out_under_all_their_names() -> None:
    found = WhatIf.parse("ctx=32768,slots=4,threads=8")
    assert found.environment == {
        "COLI_CTX": "32768",
        "CTX": "32768",
        "COLI_KV_SLOTS": "4",
        "KV_SLOTS": "4",
        "COLI_NUM_THREADS": "8",
        "OMP_NUM_THREADS": "8",
    }
    assert found.body() == {"environment": found.environment}
    assert WhatIf.parse("ram=6.5").body() == {"environment": {}, "ram_bytes": 6_500_000_000}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not of the form NAME=VALUE"),
        ("ram=", "'ram=' is not of the form"),
        ("=64", "does not know ''"),
        ("ram=64,", "'' is not of the form"),
        ("ram=-1", "'-1' is no amount"),
        ("ram=1e3", "'1e3' is no amount"),
        ("ram=nan", "'nan' is no amount"),
        ("ram=9999999T", "no amount"),
        ("disk=0GB/s", "'0GB/s' is no amount"),
        ("dsk=7", "does not know 'dsk'"),
    ],
)
def test_what_it_does_not_understand_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError) as found:
        WhatIf.parse(text)
    assert words in found.value.message
    assert found.value.hint


@pytest.mark.parametrize("text", ["ctx=-1", "slots=0", "threads=some", "numerics=exact"])
def test_settings_keep_their_own_limits(text: str) -> None:
    with pytest.raises(SettingsError) as found:
        WhatIf.parse(text)
    assert "--what-if" in found.value.message
