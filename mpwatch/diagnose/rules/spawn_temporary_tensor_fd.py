"""A tensor that lived only while pickling was sent to a spawned process."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "spawn-temporary-tensor-fd"
_SAID = (
    said("unable to resize file <filename not specified>"),
    said("unable to resize file", "Invalid argument (22)"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary="received a file descriptor that means something else here",
        cause=(
            "Under spawn and forkserver a tensor's descriptor is recorded by number "
            "without keeping the tensor. One that exists only during pickling (made in "
            "__getstate__ or __reduce__, or the state of a torch.Generator) is freed "
            "before the child starts, and its number is closed or belongs to another "
            "file: at best this error, at worst foreign data."
        ),
        advice=(
            "Build packed tensors in __init__ and keep them on the object, pass a seed "
            "instead of a Generator, or use the strategy file_system, which passes "
            "names instead of numbers and can leak files on a kill."
        ),
    )
