from __future__ import annotations

import pytest

from mpwatch.diagnose.rules.distributed import collective_checks
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import found, main, only, process, snapshot_of, thread


def rank(number: int, setting: str | None, name: str = "gloo_worker") -> Process:
    environment = {"RANK": str(number), "WORLD_SIZE": "2"}
    if setting is not None:
        environment["TORCH_DISTRIBUTED_DEBUG"] = setting
    threads = (thread(300 + number), thread(400 + number, name=name))
    return process(300 + number, "rank", environment=environment, threads=threads)


def test_the_setting_is_named_with_the_ranks_that_have_it() -> None:
    job = snapshot_of(main(), rank(0, "DETAIL"), rank(1, "detail"))

    finding = only(collective_checks.check, job)

    assert finding.severity is Severity.INFO
    assert finding.summary == "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each collective of 2 ranks"
    assert "(300)" in finding.evidence[0]
    assert "(301)" in finding.evidence[0]


@pytest.mark.parametrize("setting", [None, "", "OFF", "INFO"])
def test_other_values_check_nothing(setting: str | None) -> None:
    job = snapshot_of(main(), rank(0, setting), rank(1, setting))

    assert found(collective_checks.check, job) == []


def test_a_process_without_a_process_group_has_no_collectives() -> None:
    job = snapshot_of(main(), rank(0, "DETAIL", name="python"))

    assert found(collective_checks.check, job) == []
