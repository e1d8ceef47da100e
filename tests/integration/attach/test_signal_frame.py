"""The observer measures the layout of signal frames on itself, and survives that."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="AMX is of x86-64"),
]

FROM_MANY_THREADS = """
import ctypes, random, signal, threading, time
from mpwatch.attach.arch import x86_64

class Unhurried(ctypes.CDLL):
    def __getitem__(self, name):  # between the handler's arrival and the signal
        time.sleep(random.random() / 1000)
        return super().__getitem__(name)

ctypes.CDLL = Unhurried
for _ in range(20):
    x86_64._measure_frame.cache_clear()
    together = threading.Barrier(8)
    def look():
        together.wait()
        x86_64.own_signal_layout()
    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(signal.getsignal(signal.SIGRTMAX), x86_64.own_signal_layout()[1] > 0)
"""


def test_concurrent_measurements_of_the_signal_frame_do_not_end_the_observer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROM_MANY_THREADS], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr
