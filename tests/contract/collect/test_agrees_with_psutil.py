"""The probes and psutil, which share no code, read the same values of a real process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.model.samples import ProcSample

pytestmark = pytest.mark.slow

CODE = """
import os, subprocess, sys, threading
pipes = [os.pipe() for _ in range(5)]
file = open(sys.executable, "rb")
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
sys.stdin.readline()
child.communicate()
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        for each in family(running.pid):
            until_it_reads(each.pid)
        yield running


def family(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def until_it_reads(pid: int) -> None:
    # Until then it still runs, and its counters change between the two readings.
    deadline_s = time.monotonic() + 30
    while "pipe_read" not in Path(f"/proc/{pid}/wchan").read_text():
        assert time.monotonic() < deadline_s


@pytest.fixture
def samples(program: subprocess.Popen[bytes]) -> tuple[ProcSample, ...]:
    tree = TreeCollector(identify(program.pid)).collect(ReadRequest.everything())
    assert tree is not None
    return tree.processes


def test_both_read_the_same_tree(
    program: subprocess.Popen[bytes], samples: tuple[ProcSample, ...]
) -> None:
    theirs = family(program.pid)

    assert [s.process.pid for s in samples] == [p.pid for p in theirs]
    assert [s.parent_pid for s in samples] == [p.ppid() for p in theirs]
    assert [s.cmdline[0] for s in samples] == [p.cmdline()[0] for p in theirs]
    assert all(
        abs((s.born_wall_s or 0) - p.create_time()) < 1.5
        for s, p in zip(samples, theirs, strict=True)
    )


def test_both_read_the_same_process(samples: tuple[ProcSample, ...]) -> None:
    ours = samples[0]
    theirs = psutil.Process(ours.process.pid)

    assert ours.fds is not None
    assert ours.fds.used == theirs.num_fds()
    assert (ours.fds.soft_limit, ours.fds.hard_limit) == theirs.rlimit(psutil.RLIMIT_NOFILE)
    assert ours.fds.by_kind is not None
    assert sum(ours.fds.by_kind.values()) == ours.fds.used
    assert ours.fds.by_kind["pipe"] == 12 + 2
    assert ours.threads is not None
    assert {thread.tid for thread in ours.threads} == {t.id for t in theirs.threads()}
    assert ours.exe == theirs.exe()
    assert ours.uid == theirs.uids().real
    assert ours.nice == theirs.nice()
    assert ours.cpus_allowed == len(theirs.cpu_affinity() or ())
    switches = theirs.num_ctx_switches()
    assert ours.voluntary_switches == switches.voluntary
    memory = theirs.memory_full_info()
    assert ours.memory is not None
    # Its share of a library changes whenever another process maps it.
    assert abs((ours.memory.pss_bytes or 0) - memory.pss) < 64 << 10
    assert ours.memory.private_bytes == memory.uss
    # The kernel counts resident pages per thread and adds them up with a delay.
    assert abs((ours.memory.rss_bytes or 0) - memory.rss) < 4 << 20


def test_both_read_the_same_host(program: subprocess.Popen[bytes]) -> None:
    tree = TreeCollector(identify(program.pid)).collect(ReadRequest())
    assert tree is not None
    host, memory = tree.host, psutil.virtual_memory()

    assert host.memory_total_bytes == memory.total
    assert abs((host.memory_available_bytes or 0) - memory.available) < 512 << 20
    assert host.cpu_count == psutil.cpu_count()
    assert host.shm is not None
    assert host.shm.total_bytes == psutil.disk_usage("/dev/shm").total
    assert tree.wall_s - (host.wall_s or 0) == 0
