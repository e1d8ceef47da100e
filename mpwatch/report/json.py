"""Reports as JSON: the documents, then one function for each kind of value.

Keys do not change within a schema number; scripts rely on them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

import msgspec

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.describe.account import process_words
from mpwatch.describe.processes import unique_names
from mpwatch.describe.progress import has_hook, moment_of, pace_words, progress_of
from mpwatch.diagnose.analysis.exits.kinds import failed_processes, last_exceptions
from mpwatch.diagnose.analysis.stack_merge import merged_stacks
from mpwatch.model.account import LAST_MINUTE_S, Account, ProcessAccount, Share
from mpwatch.model.findings import Finding
from mpwatch.model.host import CgroupSample, Check, FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.model.progress import RECENT_S, Pace
from mpwatch.model.progress import pace as pace_of
from mpwatch.model.samples import GpuSample, MixedFrame
from mpwatch.model.snapshot import Flow, Loader, Process, Segment, Snapshot, Thread, WorkerLoad
from mpwatch.model.waits import WaitGraph

Document: TypeAlias = dict[str, Any]

SCHEMA = 1
_LAST_S = 253_402_300_799.0
"""The end of the year 9999, the last that ISO 8601 and Python can represent."""
SOCKET_SEEN = "its socket exists; the hook was not asked"


def text_of(document: Document) -> str:
    """The document as JSON text, ASCII only, for terminals and pipes with any encoding.

    Raises:
        ValueError: It contains a number that JSON does not have (infinite or not a number).
    """
    # The standard library indents in Python: ten times slower for a job of 64 workers.
    return msgspec.json.format(json.dumps(document, allow_nan=False), indent=2)


def snapshot_json(snapshot: Snapshot, *, with_stacks: bool) -> Document:
    """The whole job, schema 1.

    Args:
        snapshot: The job.
        with_stacks: Whether to include the stacks of threads; without them the lists are empty.
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


def plan_json(plan: InjectionPlan) -> Document:
    """The plan of an injection."""
    return {
        "schema": SCHEMA,
        "processes": [
            {
                "pid": each.process.pid,
                "start_ticks": each.process.start_ticks,
                "role": each.role,
                "name": each.name,
                "method": each.method or None,
                "would_be_injected": each.would_be_injected,
                "writes": list(each.writes),
                "reason": each.reason or None,
                "fix": each.fix or None,
            }
            for each in plan.processes
        ],
        "patches": list(plan.patches),
    }


def diagnose_json(snapshot: Snapshot) -> Document:
    """Findings, waits, merged stacks, the account of time and progress, without the samples."""
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
            for each in failed_processes(snapshot)
            if each.ended is not None
        ],
        "last_words": [
            {"pid": entry.process and entry.process.pid, "words": words, "place": place or None}
            for entry, words, place in last_exceptions(snapshot)
        ],
        "together": [
            {
                "who": name,
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
            for name, merged in merged_stacks(snapshot.living())
        ],
        "account": account_json(snapshot.account, unique_names(snapshot)),
        "progress": progress_json(snapshot),
    }


def doctor_json(checks: Sequence[Check]) -> Document:
    """The checks of `doctor`."""
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

    Times outside 1970 to 9999 are shown as the first or last second of that range.
    """
    within = min(max(wall_s, 0.0), _LAST_S)
    return datetime.fromtimestamp(within, timezone.utc).isoformat(timespec="milliseconds")


def _outline(process: JobProcess, root: int) -> Document:
    """One process of a listing, with the keys of a dump that are known without reading more."""
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


def finding_json(finding: Finding, at_s: float) -> Document:
    """One finding, schema 1.

    `first_seen_s` and `resolved_s` are seconds before the time of the document, `eta_s` is seconds
    after it.

    Args:
        finding: The finding.
        at_s: The time of the document, monotonic seconds.
    """
    return {
        "rule": finding.rule,
        "severity": finding.severity.word,
        "pid": _pid(finding.process),
        "tid": finding.tid,
        "summary": finding.summary,
        "evidence": list(finding.evidence),
        "cause": finding.cause,
        "advice": finding.advice,
        "eta_s": _finite(finding.eta_s),
        "subject": finding.subject,
        "effect_of": finding.effect_of,
        "resolved": finding.resolved_s is not None,
        "first_seen_s": _ago_s(finding.first_seen_s, at_s),
        "resolved_s": _ago_s(finding.resolved_s, at_s),
    }


def _ago_s(then_s: float | None, at_s: float) -> float | None:
    """Seconds from then until a moment, never negative."""
    return None if then_s is None else _finite(max(0.0, at_s - then_s))


def account_json(account: Account, names: Mapping[ProcessId, str]) -> Document:
    """What each process and thread did with its time.

    Shares are parts of 1 and sum to 1. `error` is half the width of the 95 % confidence interval of
    a share of waiting.

    Args:
        account: The account.
        names: From `mpwatch.describe.processes.unique_names`.
    """
    return {
        "watched_s": _finite(account.watched_s),
        "readings": account.readings,
        "last_minute_s": LAST_MINUTE_S,
        "processes": [
            _account_of(each, names) for each in account.processes.values() if each.uncounted
        ],
    }


def _account_of(account: ProcessAccount, names: Mapping[ProcessId, str]) -> Document:
    threads = account.threads
    last_minute = threads[0].last_minute()
    return {
        "pid": account.process.pid,
        "start_ticks": account.process.start_ticks,
        "name": names.get(account.process, str(account.process.pid)),
        "words": process_words(account, names),
        "observed_s": _finite(threads[0].whole().observed_s),
        "error": _finite(last_minute.error),
        "last_minute": _shares(last_minute.shares()),
        "whole": _shares(threads[0].whole().shares()),
        "threads": [
            {
                "tid": thread.tid,
                "name": thread.name,
                "last_minute": _shares(thread.last_minute().shares()),
                "whole": _shares(thread.whole().shares()),
            }
            for thread in threads
        ],
        "omitted_threads": account.omitted,
    }


def progress_json(snapshot: Snapshot) -> Document:
    """Batches, collectives, queue calls and tensors per second, as far as hooks reported them.

    `totals` has the whole job and `sources` each process; what was never seen to progress is in
    neither. `is_known` is false if no process had a hook: then nothing is known of progress.
    Times are relative to that of the document, or to the end of the job if it has ended.
    """
    names = unique_names(snapshot)
    return {
        "is_known": has_hook(snapshot),
        "recent_s": RECENT_S,
        "totals": [
            {"pids": [each.pid for each in pace.processes], **_pace(pace)}
            for pace in progress_of(snapshot)
        ],
        "sources": [
            {
                "pid": source.process.pid,
                "start_ticks": source.process.start_ticks,
                "name": names.get(source.process, str(source.process.pid)),
                **_pace(pace_of((source,), moment_of(snapshot))),
            }
            for source in snapshot.progress
            if source.process is not None
        ],
    }


def _pace(pace: Pace) -> Document:
    """The rates of one kind, per second.

    `idle_s` is the time since the last one, `before_per_s` the rate up to that one. `change` is
    null where the rate has not changed, or is 0. `recent` has the last minutes as pairs, oldest
    first: the rate over five seconds, and how long ago these ended.
    """
    change = pace.change
    return {
        "kind": pace.kind,
        "words": pace_words(pace),
        "total": pace.total,
        "span_s": _finite(pace.span_s),
        "now_per_s": _finite(pace.now_per_s),
        "whole_per_s": _finite(pace.whole_per_s),
        "idle_s": _finite(pace.idle_s),
        "before_per_s": _finite(pace.before_per_s),
        "change": change
        and {
            "ago_s": _finite(change.ago_s),
            "before_per_s": _finite(change.before_per_s),
            "since_per_s": _finite(change.since_per_s),
        },
        "recent": [[_finite(ago_s), _finite(rate)] for ago_s, rate in pace.recent],
    }


def _shares(shares: Sequence[Share]) -> list[Document]:
    return [
        {
            "activity": activity.kind,
            "what": activity.what or None,
            "target": activity.target or None,
            "provider_pids": [provider.pid for provider in activity.providers],
            "place": activity.place or None,
            "share": _finite(share),
        }
        for activity, share in shares
    ]


def host_json(host: HostSample) -> Document:
    """The machine or container around the job."""
    return {
        "hostname": host.hostname,
        "kernel": host.kernel,
        "cpu_count": host.cpu_count,
        "usable_cpus": host.usable_cpus,
        "load_1m": _finite(host.load_1m),
        "runnable": host.runnable,
        "memory_total_bytes": host.memory_total_bytes,
        "memory_available_bytes": host.memory_available_bytes,
        "shm": _file_system(host.shm),
        "tmp": _file_system(host.tmp),
        "cgroup": _cgroup(host.cgroup),
        "max_map_count": host.max_map_count,
        "threads_max": host.threads_max,
        "problems": list(host.problems),
    }


def waits_json(waits: WaitGraph) -> Document:
    """The wait graph, as chains in words and as edges."""
    return {
        "chains": [
            {
                "sentence": chain.sentence,
                "verdict": chain.verdict,
                "conclusion": chain.conclusion,
                "links": [
                    {
                        "pid": _pid(link.process),
                        "tid": link.tid,
                        "who": link.name,
                        "words": link.words,
                        "since_s": _finite(link.since_s),
                    }
                    for link in chain.links
                ],
            }
            for chain in waits.chains
        ],
        "edges": [
            {
                "pid": edge.waiter.pid,
                "tid": edge.tid,
                "kind": edge.kind,
                "what": edge.what,
                "providers": [provider.pid for provider in edge.providers],
                "since_s": _finite(edge.since_s),
                "evidence": edge.evidence,
                "ordinary": edge.is_ordinary,
            }
            for edge in waits.edges
        ],
    }


def process_json(process: Process, with_stacks: bool) -> Document:
    """One process, schema 1; `with_stacks` as in `snapshot_json`."""
    sample = process.sample
    fds, maps, memory = sample.fds, sample.maps, sample.memory
    return {
        "pid": process.pid,
        "ppid": sample.parent_pid,
        "start_ticks": process.process.start_ticks,
        "role": process.role,
        "name": sample.name,
        "cmdline": list(sample.cmdline),
        "state": "X" if process.is_gone else sample.state,
        "cpu_percent": _finite(process.cpu_percent),
        "rss_bytes": memory.rss_bytes if memory else None,
        "pss_bytes": memory.pss_bytes if memory else None,
        "threads": [_thread(thread, with_stacks) for thread in process.threads],
        "fds": {
            "used": fds.used if fds else None,
            "soft_limit": fds.soft_limit if fds else None,
            "by_kind": dict(fds.by_kind) if fds and fds.by_kind is not None else None,
        },
        "maps": {"used": maps.used if maps else None, "limit": maps.limit if maps else None},
        "hook": {
            "state": process.hook.state,
            "reason": process.hook.reason,
            "events": process.hook.events,
            "lost": process.hook.lost,
            "missing": dict(process.hook.missing),
        },
        "start_method": process.start_method,
        "sharing_strategy": process.sharing_strategy,
        "shared_cache": _shared_cache(process),
        "loader": _load(process),
        "gpu": [
            {
                "index": use.index,
                "memory_bytes": use.memory_bytes,
                "allocated_bytes": use.allocated_bytes,
                "reserved_bytes": use.reserved_bytes,
            }
            for use in process.gpus
        ],
        "problems": [*sample.problems, *process.problems],
        "stacks_cost_s": _finite(process.stacks_cost_s) if with_stacks else None,
        **_process_extras(process),
    }


def _process_extras(process: Process) -> Document:
    """Keys of a process that were added after the first version of schema 1."""
    sample, ended = process.sample, process.ended
    return {
        "label": process.label,
        "rank": sample.rank,
        "parent": _pid(process.parent),
        "doing": process.doing,
        "private_bytes": process.private_bytes,
        "shm_bytes": process.shm_bytes,
        "thread_count": sample.thread_count,
        "torch": process.hook.torch,
        "python": process.hook.python or sample.python_version,
        "ended": ended
        and {"exit_code": ended.exit_code, "signal": ended.signal, "words": ended.words},
    }


def _thread(thread: Thread, with_stacks: bool) -> Document:
    frames = thread.mixed or [MixedFrame(frame, False) for frame in thread.stack]
    return {
        "tid": thread.tid,
        "name": thread.name,
        "state": thread.state,
        "wchan": thread.wchan,
        "cpu_percent": _finite(thread.cpu_percent),
        "stack": [
            {
                "function": frame.function,
                "file": frame.file,
                "line": frame.line,
                **({"locals": dict(frame.locals)} if frame.locals else {}),
                **({"is_native": True} if is_native else {}),
            }
            for frame, is_native in (frames if with_stacks else ())
        ],
        "stack_source": thread.stack_source if with_stacks else None,
        "waits_on": thread.waits_on
        and {
            "kind": thread.waits_on.kind,
            "call": thread.waits_on.call,
            "targets": list(thread.waits_on.targets),
        },
        "has_gil": thread.has_gil,
        "still_s": _finite(thread.still_s),
    }


def _shared_cache(process: Process) -> Document | None:
    cache = process.shared_cache
    if cache is None:
        return None
    return {"entries": cache.entries, "limit": cache.limit, "expired": cache.expired}


def _load(process: Process) -> Document | None:
    """The load of a DataLoader worker; without the hook only its number is known."""
    if process.role != "loader-worker" and process.loader is None:
        return None
    load = process.loader or WorkerLoad(worker_id=process.sample.worker_id)
    hooked = process.loader is not None
    return {
        "worker_id": load.worker_id if load.worker_id is not None else process.sample.worker_id,
        "fetched": load.fetched if hooked else None,
        "fetch_p50_s": _finite(load.fetch_p50_s),
        "fetch_p99_s": _finite(load.fetch_p99_s),
        "task": load.task,
        "task_since_s": _finite(load.task_since_s),
        "index": load.index,
        "queued": load.queued,
        "parked": load.parked,
    }


def segment_json(segment: Segment, wall_s: float) -> Document:
    """One shared-memory file, schema 1."""
    return {
        "id": str(segment.segment),
        "path": segment.path,
        "size_bytes": segment.size_bytes,
        "allocated_bytes": segment.allocated_bytes,
        "linked": segment.is_linked,
        "creator_pid": segment.creator_pid,
        "mappers": [mapper.pid for mapper in segment.mappers],
        "age_s": _finite(segment.age_s(wall_s)),
        "kind": segment.kind,
        "holders": [holder.pid for holder in segment.holders],
        "call_site": segment.call_site,
    }


def flow_json(flow: Flow) -> Document:
    """Tensors from one process to another, schema 1."""
    return {
        "sender_pid": flow.sender.pid,
        "receiver_pid": flow.receiver.pid,
        "tensors": flow.tensors,
        "bytes": flow.bytes,
        "latency_p50_s": _finite(flow.latency_p50_s),
        "latency_p99_s": _finite(flow.latency_p99_s),
        "copied_bytes": flow.copied_bytes,
        "tensors_per_s": _finite(flow.tensors_per_s),
        "bytes_per_s": _finite(flow.bytes_per_s),
        "in_flight": flow.in_flight,
    }


def loader_json(loader: Loader) -> Document:
    """One live DataLoader iterator."""
    return {
        "pid": loader.process.pid,
        "key": loader.key,
        "workers": loader.workers,
        "prefetch": loader.prefetch,
        "next_task": loader.next_task,
        "outstanding": loader.outstanding,
        "parked": loader.parked,
        "owner_worker": loader.owner_worker,
        "wait_share": _finite(loader.wait_share),
        "batches": loader.batches,
    }


def gpu_json(gpu: GpuSample) -> Document:
    """One GPU."""
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_total_bytes": gpu.memory_total_bytes,
        "utilization_percent": _finite(gpu.utilization_percent),
        "temperature_c": _finite(gpu.temperature_c),
        "power_w": _finite(gpu.power_w),
        "processes": [{"pid": p.pid, "memory_bytes": p.memory_bytes} for p in gpu.processes],
        "problems": list(gpu.problems),
    }


def _file_system(found: FileSystemSample | None) -> Document | None:
    if found is None:
        return None
    return {
        "path": found.path,
        "total_bytes": found.total_bytes,
        "free_bytes": found.free_bytes,
        "total_inodes": found.total_inodes,
        "free_inodes": found.free_inodes,
    }


def _cgroup(cgroup: CgroupSample | None) -> Document | None:
    if cgroup is None:
        return None
    return {
        "version": cgroup.version,
        "path": cgroup.path,
        "memory_bytes": cgroup.memory_bytes,
        "memory_limit_bytes": cgroup.memory_limit_bytes,
        "memory_peak_bytes": cgroup.memory_peak_bytes,
        "limit_hits": cgroup.limit_hits,
        "oom_kills": cgroup.oom_kills,
        "pids_current": cgroup.pids_current,
        "pids_limit": cgroup.pids_limit,
        "pids_limit_hits": cgroup.pids_limit_hits,
        "cpu_quota_cpus": _finite(cgroup.cpu_quota_cpus),
        "throttled_periods": cgroup.throttled_periods,
    }


def _pid(process: ProcessId | None) -> int | None:
    return None if process is None else process.pid


def _finite(value: float | None) -> float | None:
    """The number, or `None` for infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
