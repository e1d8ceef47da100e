"""More descriptors are handed to a new process than the fork server accepts."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "forkserver-too-many-fds"
_SAID = (said("too many fds"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=(
            "cannot start a process: its argument holds more tensors than the fork server accepts"
        ),
        cause=(
            "The fork server passes all descriptors of a new process in one message and "
            "refuses more than 251. Each separate tensor in the dataset or model is "
            "one. The limit is fixed in CPython: ulimit has nothing to do with it. Fork "
            "server is the default from Python 3.14 on."
        ),
        advice=(
            "Pack the tensors into few (one tensor and offsets), or pass "
            'multiprocessing_context="fork" or "spawn" explicitly; the strategy '
            "file_system also works, with its leaks on a kill."
        ),
    )
