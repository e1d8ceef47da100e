from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.samples import ThreadSample, WaitedOn
from mpwatch.model.waits import loader_wait
from tests.builders.snapshots import process

POLL = WaitedOn("poll", "poll", ("pipe:[5]",), timeout_s=5.0)
CONDITION = WaitedOn("futex", "futex", timeout_s=4.2)


def sample(state: str, wait: WaitedOn | None, *others: str) -> float | None:
    own = (
        ThreadSample(200, "python", state, 0, waits_on=wait),
        *(ThreadSample(201 + i, name, "S", 0) for i, name in enumerate(others)),
    )
    return loader_wait(replace(process(200).sample, threads=own))


@pytest.mark.parametrize(
    ("state", "wait", "value"),
    [
        ("S", POLL, 1.0),
        ("S", replace(POLL, timeout_s=None), 0.0),
        ("S", replace(POLL, timeout_s=60.0), 0.0),
        ("S", CONDITION, 0.0),
        ("R", None, 0.0),
        ("D", POLL, 0.0),
        ("S", None, None),
    ],
)
def test_a_loader_waits_in_steps_of_five_seconds(
    state: str, wait: WaitedOn | None, value: float | None
) -> None:
    assert sample(state, wait) == value


def test_with_a_pin_thread_main_waits_by_a_condition() -> None:
    assert sample("S", CONDITION, "pt_data_pin") == 1.0
    assert sample("S", replace(CONDITION, timeout_s=None), "pt_data_pin") == 0.0


def test_a_process_whose_threads_were_not_read_is_unknown() -> None:
    assert loader_wait(process(200).sample) is None
