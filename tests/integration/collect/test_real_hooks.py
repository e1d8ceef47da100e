from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from mpwatch.collect.hook.client import HookClients
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookSlice, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from tests import procfs
from tests.conftest import Start

from .conftest import eventually

pytestmark = pytest.mark.slow


class Listener:
    """An observer that keeps all inputs."""

    def __init__(self, pid: int) -> None:
        self.tree = TreeCollector(identify(pid))
        self.clients = HookClients()
        self.heard: list[Input] = []

    def listen(self) -> None:
        sample = self.tree.collect(ReadRequest())
        self.clients.watch(sample.processes if sample is not None else ())
        self.heard += self.clients.poll(0.1)

    def states(self) -> dict[int, str]:
        """The last state of each process."""
        self.listen()
        return {s.process.pid: s.state for s in self.heard if isinstance(s, HookStatus)}

    def has_state(self, pid: int, state: str) -> bool:
        return self.states().get(pid) == state

    def who_said(self, kind: type) -> set[ProcessId]:
        self.listen()
        return {each.process for each in self.heard if isinstance(each, kind)}  # type: ignore[union-attr]


@pytest.fixture
def listen() -> Iterator[Callable[[int], Listener]]:
    """Start observing a job."""
    with contextlib.ExitStack() as listening:

        def begin(pid: int) -> Listener:
            listener = Listener(pid)
            listening.callback(listener.clients.close)
            return listener

        yield begin


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped."""
    return all(procfs.fields(tid)[0] == "T" for tid in procfs.threads(pid))


def test_a_real_hook_is_received_answers_is_silent_and_leaves_its_ring(
    start: Start, listen: Callable[[int], Listener]
) -> None:
    job = start("loader.py", "2", "--hook")
    job.wait_for("ready")
    listener = listen(job.pid)

    eventually(lambda: len(listener.who_said(HookHello)) == 3)
    everybody = listener.who_said(HookHello)
    eventually(lambda: listener.who_said(HookSlice) == everybody)
    for process in everybody:
        assert listener.clients.ask(process, "stacks") is None
        assert listener.clients.ask(process, "gauges") is None
    eventually(lambda: listener.who_said(HookGauges) == everybody)
    stacks = [each for each in listener.heard if isinstance(each, StacksTaken)]
    workers = [s for s in stacks if s.process.pid != job.pid]
    functions = [{f.function for t in s.stacks for f in t.frames} for s in workers]
    assert all("_worker_loop" in names for names in functions)

    main = next(process for process in everybody if process.pid == job.pid)
    os.kill(job.pid, signal.SIGSTOP)
    eventually(
        lambda: is_stopped(job.pid)
    )  # until all threads are stopped the hook may still answer
    assert listener.clients.ask(main, "ping") is None
    eventually(lambda: listener.has_state(job.pid, "silent"))
    os.kill(job.pid, signal.SIGCONT)
    eventually(lambda: listener.has_state(job.pid, "ready"))

    worker = next(process for process in everybody if process.pid != job.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    ring = listener.clients.links[worker].read_ring()
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: listener.has_state(worker.pid, "gone"))

    assert ring is not None
    assert ring.header is not None
    assert (ring.header.pid_inside, ring.header.start_ticks) == worker
    assert wire.LOADER_FETCH in {event.kind for event in ring.events}
    assert ring.problems == ()
