"""The hook in programs that use CUDA: the same results, and no lock of the allocator taken."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.collect.process.procfs import stat_of
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from mpwatch.tui.pages.gpu import reason_not_to_lock_allocator
from tests.conftest import PROGRAMS, Program, Start
from tests.integration.hook.client import Client, sockets
from tests.procfs import eventually, hook_threads

pytestmark = pytest.mark.slow

GUEST = str(PROGRAMS / "cuda_guest.py")
RUN = [sys.executable, "-m", "mpwatch", "run", "--headless", GUEST]


def turns(file: Path) -> int:
    """How often a thread of the program has had the GIL."""
    return int(file.read_bytes() or b"0") if file.exists() else 0


def runs_on(file: Path) -> bool:
    """Whether that thread gets on."""
    before = turns(file)
    return eventually(lambda: turns(file) > before + 20, 5)


def inject_into(program: Program) -> None:
    attached = inject(stat_of(program.pid).process, timeout_s=60)
    assert attached.state == "ready", attached


def test_tensors_sent_by_cuda_ipc_arrive_as_without_the_hook(start: Start) -> None:
    alone = start("cuda_guest.py", "ipc")
    assert alone.wait() == 0, alone.lines
    hooked = start([*RUN, "ipc"])
    assert hooked.wait() == 0, hooked.lines

    words = [line for line in hooked.lines if line.startswith(("sum", "state"))]
    assert words == alone.lines
    assert len(words) == 40
    assert all(line.startswith("sum True ") for line in words[:-1])


def test_the_hook_initialises_no_cuda(start: Start) -> None:
    program = start([*RUN, "cpu"])
    assert program.wait() == 0, program.lines
    assert "initialised False" in program.lines


def test_a_process_that_waits_for_a_kernel_is_injected_and_detached(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "turns"
    program = start("cuda_guest.py", "waits", str(file))
    program.wait_for("ready")
    assert runs_on(file)

    inject_into(program)

    assert runs_on(file)
    program.wait_for("round 2 1000.0")
    detached = detach(stat_of(program.pid).process, timeout_s=60)
    assert detached.state == "absent", detached
    assert eventually(lambda: hook_threads(program.pid) == 0)
    program.wait_for("round 3 1000.0")


def test_gauges_do_not_wait_for_the_lock_of_the_allocator(start: Start, tmp_path: Path) -> None:
    """A thread frees memory behind a kernel, with the lock of the allocator and without the GIL.

    Only a request that names it reads the gauge of the allocator, and that stops the whole process
    until the kernel ends. So the other gauges must not read it, and a dashboard must not ask then.
    """
    file = tmp_path / "turns"
    program = start("cuda_guest.py", "frees", str(file))
    program.wait_for("ready")
    inject_into(program)
    client = Client(sockets(Path(os.environ["XDG_RUNTIME_DIR"]))[program.pid])
    client.hello()
    os.kill(program.pid, signal.SIGUSR1)
    program.wait_for("freeing")

    gauges = [client.ask("gauges") for _ in range(5)]

    assert all("cuda" not in gauge and "strategy" in gauge for gauge in gauges)
    assert runs_on(file)
    client.sock.close()
    snapshot = watch_for(stat_of(program.pid).process, 4, OneShotOptions(hook="use"))
    assert snapshot is not None
    (process,) = snapshot.living()
    assert "empty_cache" in str(reason_not_to_lock_allocator(process, snapshot.at_s))
    assert runs_on(file)
    # The control: the lock was held. What takes it is answered only when the kernel has ended.
    assert "freed" not in program.lines
    client = Client(sockets(Path(os.environ["XDG_RUNTIME_DIR"]))[program.pid])
    client.hello()
    before = turns(file)
    reply = client.ask("gauges", also=["cuda"])
    assert reply["cuda"]["allocated"] >= 0
    assert turns(file) < before + 20
    program.wait_for("freed", 5)
    client.sock.close()
