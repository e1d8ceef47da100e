"""What the hook costs by itself: `python -m tests.benchmarks.hook_cost [PART ...]`.

Parts: `call` (a wrapped and recorded call beside a bare one, and what of it pure Python can not do
without), `enter` (time and memory of `instrument()` after torch is imported, where bytecode is
cached and where it cannot be). What it costs real work is measured by `hook_jobs`, and beside other
tools by `hook_rivals`.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .hook_turns import PAIRS, load, spread

CALLS = 50_000


def call() -> None:
    """Print what each part of a wrapped call takes, one after another, as they add up."""
    steps = _steps()
    rows = [{name: _nanoseconds(step) for name, step in steps.items()} for _ in range(PAIRS)]
    print(f"{'':44} ns, and times the bare call")
    for name in steps:
        taken = spread([row[name] for row in rows])
        times = spread([row[name] / row["a bare call"] for row in rows])
        print(f"{name:44} {taken}, {times}")
    above = [row["wrapped and recorded"] - row["a bare call"] for row in rows]
    print("above the bare call, ns:", spread(above))


def _steps() -> dict[str, Callable[[], None]]:
    """Functions that do more and more of what a wrapper does.

    The last but one is the floor: all that a record needs, written out in the wrapper itself. What
    the hook adds to it is a function of its own, the arguments of all kinds of records, and
    that nothing of this can raise.
    """
    import mpwatch
    from mpwatch import hook
    from mpwatch.hook import wire

    mpwatch.instrument()
    session = hook.current()
    assert session is not None
    record, now, count = session.record, session.system.monotonic_ns, itertools.count()
    pack_into = wire.RECORD.pack_into
    memory, header = session.ring.memory, wire.HEADER_BYTES
    local, mask = session.system.local(), session.ring.slots - 1
    local.tid = session.system.get_native_id()
    kind = wire.QUEUE_PUT

    def bare() -> None:
        return None

    def timed() -> None:
        began_ns = now()
        bare()
        now() - began_ns

    def packed() -> None:
        began_ns = now()
        bare()
        at_ns = now()
        pack_into(memory, header, 1, at_ns, kind, 0, 7, at_ns - began_ns, 0, 5, 0, 0)

    def placed() -> None:
        began_ns = now()
        bare()
        at_ns = now()
        number = next(count)
        place = header + (number & mask) * 64
        tid, took_ns = local.tid, at_ns - began_ns
        pack_into(memory, place, number + 1, at_ns, kind, 0, tid, took_ns, 0, 5, 0, 0)

    def wrapped() -> None:
        began_ns = now()
        bare()
        record(kind, began_ns, 0, 0, 5)

    return {
        "a bare call": bare,
        "timed": timed,
        "timed and packed": packed,
        "floor: with number, slot and thread as well": placed,
        "wrapped and recorded": wrapped,
    }


def _nanoseconds(step: Callable[[], None]) -> float:
    """Cpu time of one call, the loop included."""
    began = time.process_time_ns()
    for _ in range(CALLS):
        step()
    return (time.process_time_ns() - began) / CALLS


def enter() -> None:
    """Print what bringing the hook in takes, in processes of their own."""
    for is_cached in (True, False):
        _entered(is_cached)  # it may be the one that writes the cache
        rows = [_entered(is_cached) for _ in range(max(4, PAIRS // 4))]
        print("bytecode cached" if is_cached else "bytecode not cached")
        print("  instrument(), cpu ms: ", spread([row["cpu_ms"] for row in rows]))
        print("  private memory, KiB:  ", spread([row["private_kib"] for row in rows]))
        print("  of it blocks of Python:", spread([row["blocks"] for row in rows]))
        print("  and a ring that fills to, KiB:", int(rows[0]["ring_kib"]))


def _entered(is_cached: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        part = "_entered" if is_cached else "_entered_uncached"
        command = [sys.executable, "-m", "tests.benchmarks.hook_cost", part]
        out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    row: dict[str, float] = json.loads(out)
    return row


def _enter_here(is_cached: bool) -> dict[str, Any]:
    """Bring the hook into this process, with torch imported as a training would have it."""
    import torch.utils.data

    assert torch
    if not is_cached:
        sys.dont_write_bytecode = True
        sys.pycache_prefix = os.environ["XDG_RUNTIME_DIR"]
    gc.collect()
    before, blocks, began = _private_kib(), sys.getallocatedblocks(), time.process_time()
    from mpwatch import hook

    hook.instrument()
    cpu_ms = (time.process_time() - began) * 1e3
    session = hook.current()
    assert session is not None
    gc.collect()
    return {
        "cpu_ms": cpu_ms,
        "private_kib": _private_kib() - before,
        "blocks": sys.getallocatedblocks() - blocks,
        "ring_kib": session.ring.slots * 64 / 1024,
    }


def _private_kib() -> int:
    """Memory of this process that it shares with nobody; the ring's file counts where touched.

    These are pages touched: what was freed while the hook was loaded, and serves the program's next
    objects, counts as well. `hook_guest.py weight` counts what the hook keeps.
    """
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return sum(int(row[1]) for row in rows if row[0] in ("Private_Dirty:", "Private_Clean:"))


def main() -> None:
    parts = sys.argv[1:] or ["call", "enter"]
    if parts[0].startswith("_entered"):
        print(json.dumps(_enter_here(parts == ["_entered"])))
        return
    for part in parts:
        print(f"{part}: {load()}")
        {"call": call, "enter": enter}[part]()


if __name__ == "__main__":
    main()
