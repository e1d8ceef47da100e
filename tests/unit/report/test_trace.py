"""Recordings as traces."""

from __future__ import annotations

import io
import json
from typing import Any

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookNote, HookSlice, Input
from mpwatch.model.samples import Ended
from mpwatch.report.trace import trace_events, write_trace
from tests.builders.samples import MAIN, START_S, WORKER_0, small_job

START_NS = int(START_S * 1e9)


def event(kind: int, at_us: int, *, duration_us: int = 0, key: int = 7, aux: int = 0) -> HookEvent:
    at_ns = START_NS + at_us * 1000
    return HookEvent(0, at_ns, kind, 101, duration_us * 1000, 4096, key, 1, aux, 0)


def traced(*inputs: Input) -> list[dict[str, Any]]:
    return list(trace_events(inputs, START_S))


def phase(events: list[dict[str, Any]], letter: str) -> list[dict[str, Any]]:
    return [one for one in events if one["ph"] == letter]


def test_a_call_spans_its_duration_on_its_thread() -> None:
    slices = HookSlice(WORKER_0, START_S, (event(wire.SHARE, 500, duration_us=120),), 0)

    call = phase(traced(slices), "X")[0]

    assert (call["name"], call["pid"], call["tid"]) == ("share", WORKER_0.pid, 101)
    assert (call["ts"], call["dur"]) == (380.0, 120.0)
    assert call["args"]["bytes"] == 4096


def test_an_arrow_leads_from_sending_to_receipt() -> None:
    sent = HookSlice(WORKER_0, START_S, (event(wire.SHARE, 10), event(wire.SHARE, 20)), 0)
    received = HookSlice(MAIN, START_S, (event(wire.REBUILD, 30), event(wire.REBUILD, 40)), 0)

    events = traced(sent, received)

    tails, heads = phase(events, "s"), phase(events, "f")
    assert [one["id"] for one in tails] == [one["id"] for one in heads] == [1, 2]
    assert {one["pid"] for one in tails} == {WORKER_0.pid}
    assert {one["pid"] for one in heads} == {MAIN.pid}


def test_the_receipt_may_come_before_the_sending() -> None:
    sent = HookSlice(WORKER_0, START_S, (event(wire.SHARE, 10),), 0)
    received = HookSlice(MAIN, START_S, (event(wire.REBUILD, 30),), 0)

    events = traced(received, sent)

    assert phase(events, "s")[0]["id"] == phase(events, "f")[0]["id"]


def test_processes_and_threads_are_named_once() -> None:
    names = [one for one in traced(small_job(START_S), small_job(START_S + 1)) if one["ph"] == "M"]

    assert [one["args"]["name"] for one in names if one["name"] == "process_name"] == [
        "main python",
        "loader-worker python",
    ]
    assert len([one for one in names if one["name"] == "thread_name"]) == 2


def test_exits_and_notes_are_instants() -> None:
    events = traced(
        Ended(WORKER_0, START_S + 2, signal=9),
        HookNote(MAIN, START_NS + 3_000_000_000, "exception", {"text": "boom", "where": None}),
    )

    death, note = phase(events, "i")
    assert (death["name"], death["ts"]) == ("ended: signal 9 (SIGKILL)", 2_000_000.0)
    assert (note["name"], note["args"]) == ("exception", {"text": "boom"})


def test_an_unknown_kind_keeps_its_number() -> None:
    call = phase(traced(HookSlice(MAIN, START_S, (event(999, 5),), 0)), "X")[0]

    assert call["name"] == "kind 999"


def test_a_trace_without_events_is_valid_json() -> None:
    empty, full = io.StringIO(), io.StringIO()

    assert write_trace([], START_S, empty) == 0
    count = write_trace([small_job(START_S)], START_S, full)

    assert json.loads(empty.getvalue())["traceEvents"] == []
    assert len(json.loads(full.getvalue())["traceEvents"]) == count > 0


def test_a_process_and_its_threads_are_named_once_while_they_live() -> None:
    alone = small_job(START_S + 1, processes=(MAIN,))

    named = phase(traced(small_job(START_S), small_job(START_S + 0.5), alone, alone), "M")

    assert [(each["name"], each["pid"]) for each in named] == [
        ("process_name", MAIN.pid),
        ("thread_name", MAIN.pid),
        ("process_name", WORKER_0.pid),
        ("thread_name", WORKER_0.pid),
    ]
