"""The kernel is asked what it understood of the structures given to timer_create(2)."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mpwatch.attach.native import tracer
from mpwatch.attach.native.tracer import KillTimer
from tests.procfs import eventually

TIMERS = Path("/proc/self/timers")


@pytest.fixture
def timer() -> Iterator[KillTimer]:
    made = KillTimer()
    yield made
    made.stop()


def test_the_structures_are_those_of_the_64_bit_abi() -> None:
    # asm-generic/siginfo.h (SIGEV_MAX_SIZE 64), which x86_64 and aarch64 share; linux/time_types.h.
    event, times = tracer._SignalEvent, tracer._TimerSpec
    assert (event.value.offset, event.signo.offset, event.notify.offset) == (0, 8, 12)
    assert ctypes.sizeof(event) == 64
    assert (times.every_s.offset, times.first_s.offset, times.first_ns.offset) == (0, 16, 24)
    assert ctypes.sizeof(times) == 32


@pytest.mark.skipif(not TIMERS.exists(), reason="this kernel has no /proc/PID/timers")
def test_the_kernel_will_kill_this_process(timer: KillTimer) -> None:
    timer.start(1000)
    (found,) = re.findall(r"signal: (\d+)/\w+\nnotify: (\S+)\nClockID: 1\n", TIMERS.read_text())
    assert found == (str(int(signal.SIGKILL)), f"signal/pid.{os.getpid()}")


def test_a_stopped_process_is_killed_and_one_that_stopped_its_timer_is_not() -> None:
    program = (
        "import os, signal, sys, time\n"
        "from mpwatch.attach.native.tracer import KillTimer\n"
        "timer = KillTimer()\n"
        "timer.start(1)\n"
        "if sys.argv[1] == 'stop': timer.stop(); time.sleep(1.5)\n"
        "else: os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    codes = [
        subprocess.run([sys.executable, "-c", program, how], timeout=30).returncode
        for how in ("stop", "stand")
    ]
    assert codes == [0, -signal.SIGKILL]


def test_where_the_c_library_lacks_the_timers_they_are_those_of_librt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As before glibc 2.34; a newer glibc ships an empty librt for programs linked then."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("musl has them in its C library")
    opened: list[str | None] = []

    def without_timers(name: str | None, use_errno: bool) -> object:
        assert use_errno, "else a failure has no reason"
        opened.append(name)
        return object()

    monkeypatch.setattr(ctypes, "CDLL", without_timers)
    tracer.timer_library()
    assert opened == [None, "librt.so.1"]


def test_no_module_beside_its_packages_replaces_one_of_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that has the name of one of the standard library comes after that."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    for name in ("pickle", "signal", "socket"):
        text = f"open({str(tmp_path / f'{name}.ran')!r}, 'w').close()\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(msgspec, "__file__", str(tmp_path / "msgspec/__init__.py"))

    started = tracer.spawn()
    try:
        comm = Path(f"/proc/{started.pid}/comm")
        # It takes its name once all of it has been imported.
        assert eventually(lambda: comm.read_text().strip() == tracer.NAME), "it has not started"
    finally:
        started.close()
    assert [each.name for each in tmp_path.glob("*.ran")] == []
