from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules.gpu import cuda_ipc_counter_files_and_events, cuda_ipc_limbo
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import (
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    process,
    snapshot_of,
)

SENDER = 300


def sender(unreleased: int, oldest_s: float = 60.0, **more: Any) -> Process:
    reading = {
        "sent": 5000, "synchronised": 0, "unreleased": unreleased, "bytes": unreleased << 20,
        "oldest_ns": int(oldest_s * 1e9), **more,
    }  # fmt: skip
    return process(SENDER, "spawned", more={"gauges": {"cuda_lent": reading}})


def past(value: float, per_s: float) -> History:
    return history({(SENDER, "cuda_unreleased"): line(value, per_s=per_s)})


def test_sent_tensors_that_stay_out_in_growing_number_are_named_before_the_limit() -> None:
    finding = only(cuda_ipc_limbo.check, snapshot_of(main(), sender(400)), past(400, per_s=5))

    assert finding.process == pid(SENDER)
    assert finding.severity is Severity.WARNING
    assert finding.eta_s == pytest.approx(120, rel=0.05)
    assert finding.evidence[0].startswith("400 of 5000 tensors sent are held")
    assert ", 400M" in finding.evidence[0]


def test_beyond_the_limit_growth_is_named_without_a_forecast() -> None:
    finding = only(cuda_ipc_limbo.check, snapshot_of(main(), sender(1500)), past(1500, per_s=5))

    assert (finding.severity, finding.eta_s) == (Severity.WARNING, None)


@pytest.mark.parametrize(
    ("lender", "per_s"),
    [
        (sender(1500), 0),  # parameters of a model that all processes train
        (sender(50), 5),
        (sender(400, oldest_s=2.0), 5),  # a queue that fills up
        (process(SENDER, "spawned"), 5),
        (process(SENDER, "spawned", more={"gauges": {"cuda_lent": {"unreleased": "many"}}}), 5),
    ],
)
def test_tensors_shared_permanently_or_only_briefly_are_quiet(
    lender: Process, per_s: float
) -> None:
    assert found(cuda_ipc_limbo.check, snapshot_of(main(), lender), past(400, per_s)) == []


def test_a_warning_of_torch_itself_is_one_finding() -> None:
    said = log("exception", SENDER, "Producer process tried to deallocate over 1000 memory blocks")
    job = snapshot_of(main(), sender(400), log=(said,))

    assert len(found(cuda_ipc_limbo.check, job, past(400, per_s=5))) == 1


def test_sends_that_waited_for_the_gpu_are_named_with_their_number() -> None:
    job = snapshot_of(main(), sender(1200, synchronised=37))

    finding = only(cuda_ipc_counter_files_and_events.check, job)
    assert finding.evidence[0] == "37 of 5000 sends waited for the GPU"


@pytest.mark.parametrize("more", [{"synchronised": 0}, {"synchronised": 5000, "unreleased": 3}])
def test_where_events_are_left_or_the_platform_has_none_nothing_is_said(
    more: dict[str, int],
) -> None:
    job = snapshot_of(main(), sender(**{"unreleased": 1200, **more}))

    assert found(cuda_ipc_counter_files_and_events.check, job) == []
