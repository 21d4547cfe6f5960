"""What `coli doctor` says of the limit of open files."""

from __future__ import annotations

import resource
from typing import Any, cast

import pytest

from colibri_cli.doctor.machine_checks import check_open_files

EXAM = cast("Any", None)  # not looked at


@pytest.mark.parametrize(("hard", "status"), [(1024, "warn"), (resource.RLIM_INFINITY, "pass")])
def test_a_low_limit_is_told_with_who_may_raise_it(
    hard: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    result = check_open_files(EXAM)
    assert result.status == status
    assert ("only root" in result.summary) == (status == "warn")
