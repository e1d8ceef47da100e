"""Several processes save to the same file at the same time, so that they write over each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from mpwatch.describe.frames import at_frame
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.stack_patterns import threads_calling, user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink, Frame
from mpwatch.model.snapshot import Process

RULE = "checkpoint-many-writers"
IS_OF_RESULTS = True
SAVE = "torch/serialization.py:save"
RECENT_S = 2.0
"""An older stack does not say what a process does now."""
_CHECKPOINTS = frozenset((".pt", ".pth", ".ckpt", ".tar"))
"""What files are called that `torch.save` writes, by its documentation and by custom: processes
hold logs, locks and databases open for writing as well, and write to those in turn."""
_UNFINISHED = frozenset((".tmp", ".temp", ".part", ".partial", ".incomplete"))


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each checkpoint that several processes save to.

    A process in `torch.save` may save into memory, and have inherited the file of another one by a
    fork. So it has to have one checkpoint open for writing, and no other. One path is two files
    where the processes are in two mount namespaces.
    """
    saving: defaultdict[_File, dict[ProcessId, tuple[Process, Frame | None]]] = defaultdict(dict)
    for process, thread in threads_calling(index, SAVE):
        file = _only_checkpoint(process)
        if file is not None and (thread.stack_age_s or 0.0) <= RECENT_S:
            saving[file].setdefault(process.process, (process, user_frame(thread.stack)))
    for file, writers in saving.items():
        if len(writers) > 1:
            yield _finding(file.path, list(writers.values()))


class _File(NamedTuple):
    """A file that is written to; equal ones are the same."""

    path: str
    number: tuple[int, ...]
    """Device and inode, which several mounts may share; else the mount."""


def _identity(link: FdLink) -> _File | None:
    """The file behind a descriptor; `None` where nothing is known of it but its path."""
    found = link.written
    if found is None:
        return None
    if found.device is None or found.inode is None:
        return _File(link.target, (found.mount,))
    return _File(link.target, (found.device, found.inode))


def _only_checkpoint(process: Process) -> _File | None:
    """The one checkpoint that a process has open for writing; `None` for none or several.

    The list of descriptors is older than their number: if that has changed since, the file may be
    closed by now. A file that is mapped is written in parts that each process has of its own.
    """
    fds, maps = process.sample.fds, process.sample.maps
    if fds is None or maps is None or fds.used != sum((fds.by_kind or {}).values()):
        return None
    files = {
        _identity(link)
        for link in process.sample.links
        if link.kind == "file" and link.is_writable and _is_checkpoint(link.target)
    }
    file = files.pop() if len(files) == 1 else None
    return file if file is not None and file.path not in maps.files else None


def _is_checkpoint(path: str) -> bool:
    """Whether a file has the name of a checkpoint, or of one that is renamed when it is complete.

    A deleted one has another name, `last.pt (deleted)`: it may be another file of the same path.
    """
    name = PurePosixPath(path)
    if name.suffix in _UNFINISHED:
        name = name.with_suffix("")
    return name.suffix in _CHECKPOINTS


def _finding(path: str, writers: list[tuple[Process, Frame | None]]) -> Finding:
    """Describe the file and its writers, with the line at which each saves."""
    processes = [process for process, _ in writers]
    first, *others = processes
    places = [f"{called(process)} is in torch.save{at_frame(at)}" for process, at in writers]
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=first.process,
        others=tuple(process.process for process in others),
        subject=path,
        summary=f"{counted(len(writers), 'process', 'processes')} save to {path} at the same time",
        evidence=(
            f"{all_called(processes)} have it open for writing, and no other checkpoint",
            *places[:4],
        ),
        cause=(
            "torch.save truncates the file and writes it from its beginning, without a lock. "
            "Processes that save to one path at once write over each other: where their contents "
            "differ (states of optimizers and random generators, parts of a sharded model) the "
            "file has parts of several and cannot be loaded, or is loaded with wrong values. "
            "Where they do not differ, it is incomplete until the last of them has ended."
        ),
        advice=(
            "Save in one rank only (if dist.get_rank() == 0), to another name that is renamed at "
            "the end, with a barrier before others read it; they wait for it meanwhile. If each "
            "rank has a part of its own, put the rank into the name, or use "
            "torch.distributed.checkpoint. Check the files that were saved so: load them."
        ),
    )
