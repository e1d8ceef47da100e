"""Accounts of time with given shares, for rules that read them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mpwatch.model.account import (
    BUCKETS,
    RUNNING_KINDS,
    Account,
    Activity,
    Bucket,
    ProcessAccount,
    Tally,
    ThreadAccount,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.snapshot import Snapshot
from tests.builders.snapshots import pid

COMPUTES = Activity("computing", "Python code", place="train.py:30 step")
SLEEPS = Activity("sleeping", place="env.py:24 step")
WAITS_IN_QUEUE = Activity("waiting", "an item of a queue", "queue", place="train.py:44 main")
JOINS = Activity("waiting", "the exit of a child", "child")
IN_ALL_REDUCE = Activity("waiting", "the other ranks in all_reduce", "collective")
IN_A_CONDITION = Activity("waiting", "a lock or condition of its own process", "lock")
IS_AHEAD = Activity("waiting", "room in a full queue", "queue", place="train.py:18 act")
READINGS_IN_BUCKET = 5


def waits_for_lock(inode: int, place: str = "train.py:34 run") -> Activity:
    """A wait for a semaphore; with a place it is known from stacks that it is a lock."""
    return Activity("waiting", f"semaphore 1b:{inode}", "lock", (), place)


def answers_from(number: int, place: str = "train.py:41 gather") -> Activity:
    """A wait for data from one process."""
    return Activity("waiting", "data on socket 77", "socket", (pid(number),), place)


def with_shares(job: Snapshot, **shares: Mapping[Activity, float]) -> Snapshot:
    """The job with the account of a minute; keywords are `p` and the pid: `p200={SLEEPS: 1.0}`."""
    known = {process.pid: process.process for process in job.processes}
    accounts = {
        known[int(name[1:])]: _account(known[int(name[1:])], job.at_s, found)
        for name, found in shares.items()
    }
    readings = READINGS_IN_BUCKET * BUCKETS
    since_s = job.at_s - BUCKET_S * BUCKETS
    return replace(job, account=Account(job.root, since_s, job.at_s, readings, accounts))


def _account(process: ProcessId, at_s: float, found: Mapping[Activity, float]) -> ProcessAccount:
    first = int(at_s // BUCKET_S) - BUCKETS
    running = sum(share for activity, share in found.items() if activity.kind in RUNNING_KINDS)
    tally = Tally(
        BUCKET_S,
        BUCKET_S * running,
        READINGS_IN_BUCKET,
        {activity: BUCKET_S * share for activity, share in found.items()},
    )
    buckets = tuple(Bucket(first + number, tally) for number in range(BUCKETS))
    readings = READINGS_IN_BUCKET * BUCKETS
    thread = ThreadAccount(
        process.pid, "python", next(iter(found)), at_s, readings, 0, buckets=buckets
    )
    return ProcessAccount(process, at_s, readings, (thread,), (0,))
