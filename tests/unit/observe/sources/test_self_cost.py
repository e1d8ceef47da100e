from __future__ import annotations

from mpwatch.model.events import HookGauges
from mpwatch.observe.sources.live import Rate
from mpwatch.observe.state.hook_state import HookRecord
from tests.builders.samples import MAIN, WORKER_0


def test_the_cost_of_hooks_is_a_rate_over_hooks_known_before() -> None:
    rate = Rate()
    assert rate.of(1.0, {MAIN: 100}) is None
    assert rate.of(3.0, {MAIN: 500, WORKER_0: 9000}) == 200.0
    assert rate.of(3.0, {MAIN: 900}) == 200.0
    assert rate.of(4.0, {MAIN: 400, WORKER_0: 9100}) == 100.0


def test_the_time_in_wrappers_is_the_number_of_calls_by_what_one_takes() -> None:
    ledger = HookRecord(MAIN)
    ledger.add_gauges(HookGauges(MAIN, 1.0, {"own": {"cpu_ns": 7, "records": 20}}))
    assert (ledger.hook().own_cost_ns, ledger.hook().own_calls_ns) == (7, None)

    own = {"cpu_ns": 7, "records": 20, "wrapper_ns": 500}
    ledger.add_gauges(HookGauges(MAIN, 2.0, {"own": own}))
    assert ledger.hook().own_calls_ns == 10_000
