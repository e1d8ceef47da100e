from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mpwatch.collect.wanted import Wanted
from mpwatch.demo.catalogue import command, find
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.observe.once import LookOptions, Watch

pytestmark = pytest.mark.slow

READY_S = 90.0
BETWEEN_S = 0.7


@contextmanager
def running(name: str) -> Iterator[ProcessId]:
    """A demonstration that has said `ready`, ended afterwards with everything it started."""
    job = subprocess.Popen(
        command(find(name), sys.executable, seconds=90),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_ready(job)
        with open(f"/proc/{job.pid}/stat") as stat:
            start_ticks = int(stat.read().rpartition(")")[2].split()[19])
        yield ProcessId(job.pid, start_ticks)
    finally:
        os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(10)
        assert job.stdout is not None
        job.stdout.close()


def _wait_until_ready(job: subprocess.Popen[bytes]) -> None:
    assert job.stdout is not None
    seen = b""
    deadline = time.monotonic() + READY_S
    while b"ready" not in seen:
        left_s = deadline - time.monotonic()
        readable, _, _ = select.select([job.stdout], [], [], max(0.0, left_s))
        part = os.read(job.stdout.fileno(), 4096) if readable else b""
        assert part, f"never ready, said {seen!r}"
        seen += part


def findings_of(root: ProcessId, until: str | None, seconds: float) -> tuple[Finding, ...]:
    """Watch a job from outside until a rule has spoken, or for so long."""
    watch = Watch(root, LookOptions(hook="ignore"))
    deadline = time.monotonic() + seconds
    findings: tuple[Finding, ...] = ()
    while time.monotonic() < deadline and watch.read(Wanted()):
        findings = watch.fold.snapshot().findings
        if until is not None and any(found.rule == until for found in findings):
            break
        watch.listen(BETWEEN_S)
    return findings


@pytest.mark.parametrize(
    "rule",
    [
        "fd-exhaustion-receiver",
        "queue-join-feeder-deadlock",
        "orphaned-workers",
        "tmpdir-socket-path-too-long",
        "worker-segfault",
    ],
)
def test_a_failing_program_is_named_from_outside(rule: str) -> None:
    with running(rule) as root:
        findings = findings_of(root, rule, seconds=45)

    assert rule in {finding.rule for finding in findings}, findings
    named = next(finding for finding in findings if finding.rule == rule)
    assert named.evidence
    assert named.severity >= Severity.WARNING


def test_a_healthy_training_raises_no_warning_from_its_start_on() -> None:
    with running("healthy") as root:
        findings = findings_of(root, None, seconds=12)

    assert [f for f in findings if f.severity >= Severity.WARNING] == []
