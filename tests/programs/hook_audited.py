"""Ends while an audit hook of the program takes a lock of the program.

Usage: `hook_audited.py held|slow|killed bare|hook end|at_once`

- `held`: a daemon thread holds the lock for ever; the audit hook takes it for what concerns files,
  sockets and time, of which the program does nothing at its end.
- `slow`: the audit hook takes it for every event, and needs 0.1 s.
- `killed`: a daemon thread holds the lock for ever; the audit hook takes it for every event.
"""

from __future__ import annotations

import os
import sys
import threading
import time


class Auditor:
    """A method, because globals of the program are gone before the interpreter's last event."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.lock = threading.RLock()
        self.is_held = threading.Event()
        self.is_ending = False
        self._never = threading.Event()
        self._write = os.write

    def hear(self, event: str, _arguments: object) -> None:
        if self.way == "held" and not event.startswith(("os.", "socket.", "time.", "open")):
            return
        if self.way == "killed" and self.is_ending:
            self._write(1, f"event {event}\n".encode())
        with self.lock:
            if self.way == "slow":
                self._never.wait(0.1)  # `time.sleep` would be an event itself

    def hold(self) -> None:
        with self.lock:
            self.is_held.set()
            self._never.wait()


way, with_hook, ending = sys.argv[1:]
if with_hook == "hook":
    import mpwatch

    assert mpwatch.instrument()
    time.sleep(0.5)  # until it waits for observers

auditor = Auditor(way)
if way != "slow":
    threading.Thread(target=auditor.hold, daemon=True).start()
    auditor.is_held.wait()
sys.addaudithook(auditor.hear)
os.write(1, b"ends\n")
auditor.is_ending = True
if ending == "at_once":
    os._exit(0)
