"""Shares as fast as it can, in three threads: `hook_cut.py`; each line read brings the hook anew.

It prints the file it records in, and when the hook has given that up, `lost`.
"""

from __future__ import annotations

import sys
import threading
import time
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing

import mpwatch
from mpwatch import hook

LIMIT_S = 20.0


def share() -> None:
    while True:
        ForkingPickler.dumps(torch.ones(4))


def main() -> None:
    # No descriptor stays behind for a tensor that nobody receives.
    torch.multiprocessing.set_sharing_strategy("file_system")
    for _ in range(3):
        threading.Thread(target=share, daemon=True).start()
    for _ in sys.stdin:
        mpwatch.uninstrument()
        mpwatch.instrument()
        session = hook.current()
        assert session is not None
        print(session.ring.path, flush=True)
        end_s = time.monotonic() + LIMIT_S
        while session.ring.path is not None and time.monotonic() < end_s:
            time.sleep(0.001)
        print("lost" if session.ring.path is None else "did not notice", flush=True)


if __name__ == "__main__":
    main()
