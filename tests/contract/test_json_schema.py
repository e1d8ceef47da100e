"""Keys and types of the JSON documents; scripts rely on them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.model.host import Check
from mpwatch.model.samples import Frame, MixedFrame
from mpwatch.model.snapshot import Hook, Thread, WorkerLoad
from mpwatch.report.json import diagnose_json, doctor_json, ps_json, snapshot_json, text_of
from tests.builders.progress import source as progress_source
from tests.builders.report_job import DEAD, MAIN, WORKER, account, job, listed_job

INT, STR, BOOL, NUMBER = (int,), (str,), (bool,), (int, float)
LIST, OBJECT = (list,), (dict,)
NULL = (type(None),)

TOP = {
    "schema": INT,
    "at": STR,
    "root": INT,
    "host": OBJECT,
    "processes": LIST,
    "segments": LIST,
    "gpus": LIST,
    "flows": LIST,
    "findings": LIST,
    "problems": LIST,
}
PROCESS = {
    "pid": INT,
    "ppid": INT,
    "start_ticks": INT,
    "role": STR,
    "name": STR,
    "cmdline": LIST,
    "state": STR,
    "cpu_percent": NUMBER + NULL,
    "rss_bytes": INT + NULL,
    "pss_bytes": INT + NULL,
    "threads": LIST,
    "fds": OBJECT,
    "maps": OBJECT,
    "hook": OBJECT,
    "start_method": STR + NULL,
    "sharing_strategy": STR + NULL,
    "shared_cache": OBJECT + NULL,
    "loader": OBJECT + NULL,
    "gpu": LIST,
    "problems": LIST,
}
FDS = {"used": INT + NULL, "soft_limit": INT + NULL, "by_kind": OBJECT + NULL}
MAPS = {"used": INT + NULL, "limit": INT + NULL}
HOOK = {"state": STR, "reason": STR, "events": INT, "lost": INT}
CACHE = {"entries": INT, "limit": INT + NULL, "expired": INT + NULL}
LOADER = {"worker_id": INT + NULL}
THREAD = {
    "tid": INT,
    "name": STR,
    "state": STR,
    "wchan": STR + NULL,
    "cpu_percent": NUMBER + NULL,
    "stack": LIST,
    "stack_source": STR + NULL,
}
FRAME = {"function": STR, "file": STR, "line": INT}
SEGMENT = {
    "id": STR,
    "path": STR,
    "size_bytes": INT + NULL,
    "allocated_bytes": INT + NULL,
    "linked": BOOL,
    "creator_pid": INT + NULL,
    "mappers": LIST,
    "age_s": NUMBER + NULL,
    "kind": STR,
}
FLOW = {
    "sender_pid": INT,
    "receiver_pid": INT,
    "tensors": INT,
    "bytes": INT,
    "latency_p50_s": NUMBER + NULL,
    "latency_p99_s": NUMBER + NULL,
    "copied_bytes": INT,
}
FINDING = {
    "rule": STR,
    "severity": STR,
    "pid": INT + NULL,
    "tid": INT + NULL,
    "summary": STR,
    "evidence": LIST,
    "cause": STR,
    "advice": STR,
    "eta_s": NUMBER + NULL,
}


def assert_shape(document: Mapping[str, Any], shape: Mapping[str, tuple[type, ...]]) -> None:
    assert list(document)[: len(shape)] == list(shape)
    for key, types in shape.items():
        assert type(document[key]) in types, key


def document(*, with_stacks: bool = True) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text_of(snapshot_json(job(), with_stacks=with_stacks)))
    return read


def test_the_document_has_the_keys_of_schema_1_and_the_same_order() -> None:
    read = document()

    assert_shape(read, TOP)
    assert read["schema"] == 1
    assert read["root"] == MAIN.pid


def test_the_time_is_iso_8601_in_utc() -> None:
    at = datetime.fromisoformat(document()["at"])

    assert at == datetime.fromtimestamp(1_800_000_000, timezone.utc)
    assert at.utcoffset() is not None


def test_every_process_has_the_keys_of_the_contract() -> None:
    for process in document()["processes"]:
        assert_shape(process, PROCESS)
        assert_shape(process["fds"], FDS)
        assert_shape(process["maps"], MAPS)
        assert_shape(process["hook"], HOOK)
        for thread in process["threads"]:
            assert_shape(thread, THREAD)
            for frame in thread["stack"]:
                assert_shape(frame, FRAME)


def test_native_frames_of_a_stack_are_marked() -> None:
    mixed = (
        MixedFrame(Frame("poll", "/lib/libc.so.6", 0), True),
        MixedFrame(Frame("main", "/a/train.py", 12), False),
    )
    thread = Thread(MAIN.pid, "MainThread", "S", stack=(mixed[1].frame,), mixed=mixed)
    snapshot = replace(job(), processes=(replace(job().processes[0], threads=(thread,)),))

    (read,) = snapshot_json(snapshot, with_stacks=True)["processes"][0]["threads"]

    assert read["stack"] == [
        {"function": "poll", "file": "/lib/libc.so.6", "line": 0, "is_native": True},
        {"function": "main", "file": "/a/train.py", "line": 12},
    ]


def test_segments_flows_and_findings_have_the_keys_of_the_contract() -> None:
    read = document()

    for segment in read["segments"]:
        assert_shape(segment, SEGMENT)
    for flow in read["flows"]:
        assert_shape(flow, FLOW)
    for finding in read["findings"]:
        assert_shape(finding, FINDING)
    assert (len(read["segments"]), len(read["flows"]), len(read["findings"])) == (1, 1, 1)


def test_a_process_has_the_values_of_its_sample() -> None:
    main = document()["processes"][0]

    assert main["fds"] == {
        "used": 642,
        "soft_limit": 1024,
        "by_kind": {"torch": 600, "pipe": 42},
    }
    assert main["maps"] == {"used": 1100, "limit": 65530}
    assert_shape(main["shared_cache"], CACHE)
    assert main["shared_cache"] == {"entries": 600, "limit": 1024, "expired": 12}
    assert main["loader"] is None
    assert main["problems"] == ["smaps_rollup: Permission denied"]


def test_values_that_were_not_read_are_null_and_not_zero() -> None:
    worker = document()["processes"][1]

    assert worker["rss_bytes"] is None
    assert worker["cpu_percent"] is None
    assert worker["fds"] == {"used": None, "soft_limit": None, "by_kind": None}
    assert worker["maps"] == {"used": None, "limit": None}


def test_a_loader_worker_has_its_number_even_without_a_hook() -> None:
    snapshot = job()
    bare = replace(snapshot.processes[1], loader=None)
    snapshot = replace(
        snapshot, processes=(replace(bare, sample=replace(bare.sample, worker_id=6)),)
    )

    loader = snapshot_json(snapshot, with_stacks=False)["processes"][0]["loader"]

    assert_shape(loader, LOADER)
    assert loader["worker_id"] == 6
    assert loader["fetched"] is None


def test_a_loader_worker_has_its_batches_and_the_cost_of_its_stacks() -> None:
    worker = replace(
        job().processes[1], loader=WorkerLoad(3, queued=2, parked=1), stacks_cost_s=0.0002
    )
    snapshot = replace(job(), processes=(worker,))

    told = snapshot_json(snapshot, with_stacks=True)["processes"][0]

    assert (told["loader"]["queued"], told["loader"]["parked"]) == (2, 1)
    assert told["stacks_cost_s"] == 0.0002
    assert snapshot_json(snapshot, with_stacks=False)["processes"][0]["stacks_cost_s"] is None


def test_a_flow_names_its_ends_by_pid() -> None:
    flow = document()["flows"][0]

    assert (flow["sender_pid"], flow["receiver_pid"]) == (WORKER.pid, MAIN.pid)
    assert flow["bytes"] == flow["copied_bytes"] == 512 << 20


def test_without_stacks_the_lists_are_empty() -> None:
    thread = document(with_stacks=False)["processes"][1]["threads"][0]

    assert thread["stack"] == []
    assert thread["stack_source"] is None
    assert document()["processes"][1]["threads"][0]["stack"][0]["function"] == "decode"


def test_a_process_that_ended_has_its_exit_status() -> None:
    dead = document()["processes"][2]

    assert dead["pid"] == DEAD.pid
    assert dead["state"] == "X"
    assert dead["ended"]["signal"] == 9


@pytest.mark.parametrize("wall_s", [-1e30, 1e30, math.inf])
def test_a_time_out_of_range_is_still_a_date(wall_s: float) -> None:
    at = snapshot_json(replace(job(), wall_s=wall_s), with_stacks=False)["at"]

    assert datetime.fromisoformat(at).year in (1970, 9999)


@pytest.mark.parametrize("eta_s", [math.inf, -math.inf, math.nan])
def test_a_number_json_does_not_have_becomes_null(eta_s: float) -> None:
    snapshot = job()
    snapshot = replace(snapshot, findings=(replace(snapshot.findings[0], eta_s=eta_s),))

    assert json.loads(text_of(diagnose_json(snapshot)))["findings"][0]["eta_s"] is None


def test_a_finding_has_the_ages_of_its_start_and_resolution() -> None:
    snapshot = job()
    finding = replace(snapshot.findings[0], first_seen_s=snapshot.at_s - 4.5)
    passed = replace(finding, resolved_s=snapshot.at_s - 1.5)
    snapshot = replace(snapshot, findings=(finding, passed))

    read = json.loads(text_of(diagnose_json(snapshot)))["findings"]

    assert [each["first_seen_s"] for each in read] == [4.5, 4.5]
    assert [each["resolved_s"] for each in read] == [None, 1.5]
    assert [each["resolved"] for each in read] == [False, True]


def test_a_diagnosis_has_findings_and_chains() -> None:
    read = json.loads(text_of(diagnose_json(job())))

    assert read["schema"] == 1
    assert read["findings"][0]["severity"] == "critical"
    assert read["waits"]["chains"][0]["verdict"] == "dead-end"
    assert read["waits"]["chains"][0]["sentence"].startswith("main waits for batch 417 <- worker")


def test_a_diagnosis_has_an_account_of_time() -> None:
    snapshot = replace(job(), account=account())

    read = json.loads(text_of(diagnose_json(snapshot)))["account"]

    assert_shape(
        read, {"watched_s": NUMBER, "readings": INT, "last_minute_s": NUMBER, "processes": LIST}
    )
    (process,) = read["processes"]
    assert_shape(
        process,
        {
            "pid": INT,
            "start_ticks": INT,
            "name": STR,
            "words": STR,
            "observed_s": NUMBER,
            "error": NUMBER,
            "last_minute": LIST,
            "whole": LIST,
            "threads": LIST,
            "omitted_threads": INT,
        },
    )
    assert process["words"] == "100% waiting for batches from worker 0"
    share = {
        "activity": "waiting",
        "what": "batches",
        "target": "batch",
        "provider_pids": [WORKER.pid],
        "place": None,
        "share": 1.0,
    }
    assert process["last_minute"] == process["whole"] == [share]
    (thread,) = process["threads"]
    assert thread == {
        "tid": MAIN.pid,
        "name": "MainThread",
        "last_minute": [share],
        "whole": [share],
    }


def test_an_account_before_the_first_reading_is_empty() -> None:
    read = json.loads(text_of(diagnose_json(job())))["account"]

    assert (read["watched_s"], read["readings"], read["processes"]) == (0, 0, [])


def test_a_diagnosis_has_the_progress_of_the_job_and_of_each_process() -> None:
    batches = progress_source(12.0, 200, 3.0, 100, begin_s=200.0, process=MAIN)
    gone = batches._replace(process=None, kind="puts")

    read = json.loads(text_of(diagnose_json(replace(job(), progress=(gone, batches)))))["progress"]

    assert_shape(read, {"is_known": BOOL, "recent_s": NUMBER, "totals": LIST, "sources": LIST})
    rates = {
        "kind": STR,
        "words": STR,
        "total": INT,
        "span_s": NUMBER,
        "now_per_s": NUMBER + NULL,
        "whole_per_s": NUMBER + NULL,
        "idle_s": NUMBER,
        "before_per_s": NUMBER + NULL,
        "change": OBJECT + NULL,
        "recent": LIST,
    }
    total, puts = read["totals"]
    assert_shape(total, {"pids": LIST, **rates})
    assert (total["kind"], total["pids"], puts["kind"], puts["pids"]) == (
        "batches",
        [MAIN.pid],
        "puts",
        [],
    )
    (source,) = read["sources"]
    assert_shape(source, {"pid": INT, "start_ticks": INT, "name": STR, **rates})
    assert (source["pid"], source["name"], source["total"]) == (MAIN.pid, "main", 2700)
    assert_shape(source["change"], {"ago_s": NUMBER, "before_per_s": NUMBER, "since_per_s": NUMBER})
    assert source["recent"][0] == [290.0, 12.0]
    assert source["recent"][-1] == [0.0, 3.0]


def test_without_a_hook_progress_is_unknown_and_not_zero() -> None:
    processes = tuple(replace(process, hook=Hook()) for process in job().processes)

    read = json.loads(text_of(diagnose_json(replace(job(), processes=processes))))["progress"]

    assert read == {"is_known": False, "recent_s": 300.0, "totals": [], "sources": []}


def test_doctor_has_one_object_for_each_check() -> None:
    check = Check("open files", "warning", "1024", "runs out early", "ulimit -n 65536")

    read = json.loads(text_of(doctor_json((check,))))

    assert read["schema"] == 1
    assert read["checks"] == [
        {
            "name": "open files",
            "state": "warning",
            "value": "1024",
            "meaning": "runs out early",
            "fix": "ulimit -n 65536",
        }
    ]


def test_a_listing_has_the_keys_of_a_dump_and_the_root() -> None:
    read = json.loads(text_of(ps_json([listed_job()])))

    assert read["schema"] == 1
    main, worker = read["processes"]
    assert_shape(
        main,
        {
            "pid": INT,
            "ppid": INT,
            "start_ticks": INT,
            "root": INT,
            "role": STR,
            "name": STR,
            "cmdline": LIST,
            "state": STR,
            "rss_bytes": INT,
            "hook": OBJECT,
        },
    )
    assert (worker["pid"], worker["root"], worker["role"]) == (
        WORKER.pid,
        MAIN.pid,
        "loader-worker",
    )
    assert (main["hook"]["state"], worker["hook"]["state"]) == ("ready", "absent")
