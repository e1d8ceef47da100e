"""How a thread that waits inside of a torch DataLoader looks from outside.

Source: `MP_STATUS_CHECK_INTERVAL = 5.0` and `_pin_memory_loop` of `torch.utils.data`, torch 2.1 to
2.9: main, workers and the pin-memory thread call `Queue.get` with this limit in a loop.
"""

from __future__ import annotations

from mpwatch.model.samples import ProcSample, WaitedOn

POLL_S = (4.0, 5.01)
"""Timeout of such a poll: five seconds, less what has passed since, rounded to milliseconds."""
PIN_THREAD = "pt_data_pin"
"""How the kernel's name of the pin-memory thread begins."""


def is_loader_poll(wait: WaitedOn | None) -> bool:
    """Whether a thread polls as `Queue.get` does inside of a DataLoader."""
    if wait is None or wait.kind != "poll" or wait.timeout_s is None:
        return False
    return POLL_S[0] <= wait.timeout_s <= POLL_S[1]


def loader_wait(sample: ProcSample) -> float | None:
    """1 while the main thread waits for a batch or for work, else 0; `None` if it was not read.

    With pinned memory main waits for its pin thread instead, by a condition with the same limit.
    """
    main = next((t for t in sample.threads or () if t.tid == sample.process.pid), None)
    if main is None or (main.waits_on is None and main.state != "R"):
        return None
    if main.state != "S":
        return 0.0
    wait = main.waits_on
    if is_loader_poll(wait):
        return 1.0
    is_pinned = any(t.name.startswith(PIN_THREAD) for t in sample.threads or ())
    is_limited = wait is not None and wait.kind == "futex" and wait.timeout_s is not None
    return float(is_pinned and is_limited)
