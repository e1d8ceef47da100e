"""Documents for scripts: plain dictionaries, ready to be written as JSON.

The keys of schema 1 stay as they are: scripts rely on them. New keys may come after them. What
could not be read is null and never zero; the reason is in the `problems` beside it. Processes are
named by pid; within one document a pid means one process, because a dump is one moment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from mpwatch.collect.jobs import Job, JobProcess
from mpwatch.model.checks import Check
from mpwatch.model.snapshot import Snapshot
from mpwatch.report.crowds import crowds
from mpwatch.report.endings import ended_badly, last_words
from mpwatch.report.json_parts import (
    Document,
    finding_json,
    flow_json,
    gpu_json,
    host_json,
    loader_json,
    process_json,
    segment_json,
    waits_json,
)

SCHEMA = 1
_LAST_S = 253_402_300_799.0
"""The end of the year 9999, the last that ISO 8601 and Python can write."""
SOCKET_SEEN = "its socket is there; it was not asked"


def text_of(document: Document) -> str:
    """The document as JSON text: ASCII only, so that it survives any terminal or pipe.

    Raises:
        ValueError: It holds a number that JSON does not have (infinite or not a number).
    """
    # The standard library indents in Python: ten times slower for a job of 64 workers.
    return msgspec.json.format(json.dumps(document, allow_nan=False), indent=2)


def snapshot_json(snapshot: Snapshot, *, with_stacks: bool) -> Document:
    """The whole job at one moment, schema 1.

    Args:
        snapshot: What to write.
        with_stacks: Whether threads carry their stacks; the key is there in any case.
    """
    return {
        "schema": SCHEMA,
        "at": utc_text(snapshot.wall_s),
        "root": snapshot.root.pid,
        "host": host_json(snapshot.host),
        "processes": [process_json(process, with_stacks) for process in snapshot.processes],
        "segments": [segment_json(segment, snapshot.wall_s) for segment in snapshot.segments],
        "gpus": [gpu_json(gpu) for gpu in snapshot.gpus or ()],
        "flows": [flow_json(flow) for flow in snapshot.flows],
        "findings": [finding_json(each, snapshot.at_s) for each in snapshot.findings],
        "problems": list(snapshot.problems),
        "loaders": [loader_json(loader) for loader in snapshot.loaders],
        "waits": waits_json(snapshot.waits),
        "mode": snapshot.mode,
    }


def diagnose_json(snapshot: Snapshot) -> Document:
    """What is wrong and who waits for whom, without the readings behind it."""
    return {
        "schema": SCHEMA,
        "at": utc_text(snapshot.wall_s),
        "root": snapshot.root.pid,
        "host": host_json(snapshot.host),
        "findings": [finding_json(each, snapshot.at_s) for each in snapshot.findings],
        "waits": waits_json(snapshot.waits),
        "problems": list(snapshot.problems),
        "ended": [
            {"pid": each.pid, "words": each.ended.words}
            for each in ended_badly(snapshot)
            if each.ended is not None
        ],
        "last_words": [
            {"pid": entry.process and entry.process.pid, "words": words, "place": place or None}
            for entry, words, place in last_words(snapshot)
        ],
        "together": [
            {
                "who": called,
                "sentence": merged.sentence,
                "groups": [
                    {
                        "pids": [process.pid for process in group.processes],
                        "names": group.names,
                        "words": group.words,
                        "is_outlier": group.is_outlier,
                    }
                    for group in merged.groups
                ],
            }
            for called, merged in crowds(snapshot)
        ],
    }


def doctor_json(checks: Sequence[Check]) -> Document:
    """The doctor's answer."""
    return {
        "schema": SCHEMA,
        "checks": [
            {
                "name": check.name,
                "state": check.state,
                "value": check.value,
                "meaning": check.meaning,
                "fix": check.fix or None,
            }
            for check in checks
        ],
    }


def ps_json(jobs: Sequence[Job]) -> Document:
    """All processes of all jobs, each with the root of its job."""
    return {
        "schema": SCHEMA,
        "processes": [
            _outline(process, job.root.process.pid) for job in jobs for process in job.processes
        ],
    }


def utc_text(wall_s: float) -> str:
    """ISO 8601 in UTC with milliseconds: `2026-01-31T12:00:00.000+00:00`.

    A clock that is out of its mind is shown as the first or last moment there is.
    """
    within = min(max(wall_s, 0.0), _LAST_S)
    return datetime.fromtimestamp(within, timezone.utc).isoformat(timespec="milliseconds")


def _outline(process: JobProcess, root: int) -> Document:
    """One process of a listing: the keys of a dump as far as they are known."""
    return {
        "pid": process.process.pid,
        "ppid": process.parent_pid,
        "start_ticks": process.process.start_ticks,
        "root": root,
        "role": process.role,
        "name": process.name,
        "cmdline": list(process.cmdline),
        "state": process.state,
        "rss_bytes": process.rss_bytes,
        "hook": {
            "state": "ready" if process.has_hook else "absent",
            "reason": SOCKET_SEEN if process.has_hook else "",
        },
        "torch": process.has_torch,
        "uid": process.uid,
        "worker_id": process.worker_id,
        "rank": process.rank,
        "born_at": None if process.born_wall_s is None else utc_text(process.born_wall_s),
    }
