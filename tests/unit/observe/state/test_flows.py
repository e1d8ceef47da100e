from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent
from mpwatch.model.ids import ProcessId
from mpwatch.observe.state.flows import LATE_S, OPEN_LIMIT, FlowTable
from tests.builders.samples import MAIN, WORKER_0, WORKER_1, event, rebuilt, shared


def test_a_send_and_its_receipt_make_one_flow_with_bytes_and_latency() -> None:
    table = FlowTable()
    table.add(WORKER_0, shared(10.000, key=7, size=600))
    table.add(MAIN, rebuilt(10.002, key=7, size=600))

    (flow,) = table.flows()

    assert (flow.sender, flow.receiver) == (WORKER_0, MAIN)
    assert (flow.tensors, flow.bytes, flow.copied_bytes) == (1, 600, 600)
    assert flow.latency_p50_s is not None
    assert abs(flow.latency_p50_s - 0.002) < 1e-9


def test_a_buffer_sent_again_counts_as_sent_but_not_as_copied() -> None:
    table = FlowTable()
    for at_s in (1.0, 2.0, 3.0):
        table.add(WORKER_0, shared(at_s, key=7, copied=False))
        table.add(MAIN, rebuilt(at_s + 0.1, key=7))

    (flow,) = table.flows()

    assert (flow.bytes, flow.copied_bytes) == (3000, 1000)


def test_a_new_segment_each_time_is_copied_although_it_was_made_in_shared_memory() -> None:
    table = FlowTable()
    for key in (1, 2, 3):
        table.add(WORKER_0, shared(1.0, key=key, copied=False))
        table.add(MAIN, rebuilt(1.1, key=key))

    (flow,) = table.flows()

    assert (flow.bytes, flow.copied_bytes) == (3000, 3000)


def test_a_buffer_sent_back_makes_a_flow_in_each_direction() -> None:
    table = FlowTable()
    for process, happened in (
        (WORKER_0, shared(1.0, key=7)),
        (MAIN, rebuilt(1.1, key=7)),
        (MAIN, shared(1.2, key=7, copied=False)),
        (WORKER_0, rebuilt(1.3, key=7)),
    ):
        table.add(process, happened)

    assert {(f.sender, f.receiver): f.tensors for f in table.flows()} == {
        (WORKER_0, MAIN): 1,
        (MAIN, WORKER_0): 1,
    }


@given(st.permutations([(k, is_send) for k in range(6) for is_send in (True, False)]))
def test_the_order_in_which_reports_arrive_does_not_matter(order: list[tuple[int, bool]]) -> None:
    table = FlowTable()
    for key, is_send in order:
        if is_send:
            table.add(WORKER_0 if key % 2 else WORKER_1, shared(1.0 + key, key=key))
        else:
            table.add(MAIN, rebuilt(1.5 + key, key=key))

    assert {(f.sender, f.receiver): f.tensors for f in table.flows()} == {
        (WORKER_0, MAIN): 3,
        (WORKER_1, MAIN): 3,
    }


def test_a_receipt_without_a_hooked_sender_counts_for_the_creator_of_the_segment() -> None:
    table = FlowTable()
    table.add(MAIN, rebuilt(1.0, key=7))
    table.add(MAIN, rebuilt(1.0 + LATE_S + 1.0, key=8))

    table.settle(1.0 + LATE_S + 1.5, {(7, 26): WORKER_0, (8, 26): WORKER_0})

    (flow,) = table.flows()
    assert (flow.sender, flow.receiver, flow.tensors) == (WORKER_0, MAIN, 1)
    assert flow.latency_p50_s is None


def test_a_receipt_is_counted_after_a_time_also_when_nothing_follows_it() -> None:
    table = FlowTable()
    table.add(MAIN, rebuilt(1.0, key=7))
    table.settle(1.0 + LATE_S + 0.1, {(7, 26): WORKER_0})

    assert [flow.tensors for flow in table.flows()] == [1]


def test_a_tensor_in_flight_when_the_hook_is_injected_counts_for_its_sender() -> None:
    table = FlowTable()
    table.add(WORKER_0, event(wire.KNOWN, 2.0, key=7))
    table.add(MAIN, rebuilt(2.1, key=7, size=600))
    table.settle(2.1 + LATE_S + 0.1, {})

    (flow,) = table.flows()

    assert (flow.sender, flow.receiver) == (WORKER_0, MAIN)
    assert (flow.bytes, flow.copied_bytes) == (600, 600)


def test_a_buffer_older_than_both_hooks_does_not_count_as_copied() -> None:
    table = FlowTable()
    for process in (MAIN, WORKER_0):
        table.add(process, event(wire.KNOWN, 2.0, key=7))
    table.add(WORKER_0, shared(3.0, key=7, size=600, copied=False))
    table.add(MAIN, rebuilt(3.1, key=7, size=600))

    (flow,) = table.flows()

    assert (flow.bytes, flow.copied_bytes) == (600, 0)


def test_what_is_sent_and_not_received_is_in_flight() -> None:
    table = FlowTable()
    for key in (1, 2, 3):
        table.add(WORKER_0, shared(1.0, key=key))
    table.add(MAIN, rebuilt(1.1, key=1))

    (flow,) = table.flows()

    assert flow.in_flight == 2


def test_empty_failed_and_inherited_storages_are_no_flow() -> None:
    table = FlowTable()
    for flag in (wire.FLAG_EMPTY, wire.FLAG_RAISED, wire.FLAG_SPAWNING):
        table.add(WORKER_0, event(wire.SHARE, 1.0, key=7, flags=flag))
        table.add(MAIN, event(wire.REBUILD, 1.1, key=7, flags=flag))

    assert table.flows() == ()


def test_rates_are_unknown_at_the_first_reading_and_known_at_the_second() -> None:
    table = FlowTable()
    send_and_receive(table, 1, 1.0)
    table.settle(1.5, {})
    (first,) = table.flows()
    for key in range(2, 12):
        send_and_receive(table, key, 2.0)
    table.settle(3.5, {})
    (second,) = table.flows()

    assert first.tensors_per_s is None
    assert second.tensors_per_s == 5.0
    assert second.bytes_per_s == 5000.0


def test_the_number_of_known_segments_is_bounded() -> None:
    table = FlowTable()
    for key in range(OPEN_LIMIT + 10):
        table.add(WORKER_0, shared(1.0, key=key))
    table.add(MAIN, rebuilt(2.0, key=OPEN_LIMIT + 9))

    (flow,) = table.flows()

    assert flow.in_flight == OPEN_LIMIT - 1


def send_and_receive(table: FlowTable, key: int, at_s: float) -> None:
    events: list[tuple[ProcessId, HookEvent]] = [
        (WORKER_0, shared(at_s, key=key)),
        (MAIN, rebuilt(at_s + 0.001, key=key)),
    ]
    for process, happened in events:
        table.add(process, happened)


def test_receipts_without_a_send_are_bounded_whatever_their_times() -> None:
    table = FlowTable()
    table.add(MAIN, rebuilt(1e9, key=1))
    for key in range(2, 2 * OPEN_LIMIT):
        table.add(MAIN, rebuilt(1.0, key=key))

    assert len(table._unmatched) == OPEN_LIMIT
