"""Forked workers share one open file, and with it one read position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, loader_owners
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "shared-file-offset"
IS_OF_RESULTS = True
_NOT_DATA = (".log", ".out", ".err", ".lock", ".py", ".pyc", ".so", ".jsonl", ".txt", ".csv")
"""Endings of files that processes write, or share for another reason."""
_NOT_HERE = ("/proc/", "/sys/", "/dev/", "/usr/", "/etc/")


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each data file that main and its forked workers share.

    An inherited file has the same descriptor number in all of them; a file that each worker opens
    itself is not open in main. At position 0 no process has read from it.
    """
    for owner, workers in loader_owners(index):
        mine = _files(owner)
        if not mine:
            continue
        holders: defaultdict[tuple[int, str], list[Process]] = defaultdict(list)
        for worker in workers:
            if worker.sample.start_method == "fork":
                for file in _files(worker) & mine:
                    holders[file].append(worker)
        for (fd, path), sharing in holders.items():
            if len(sharing) > 1:
                yield _finding(owner, sharing, fd, path)


def _files(process: Process) -> set[tuple[int, str]]:
    """Number and path of each data file a process has open, without those that it has mapped.

    A map keeps a descriptor of its file (mmap of CPython), and reads by no position.
    """
    maps = process.sample.maps
    mapped = maps.files if maps is not None else ()
    return {
        (link.fd, link.target)
        for link in process.sample.links
        if link.kind == "file"
        and link.fd > 2
        and link.is_writable is False
        and link.position
        and link.target not in mapped
        and not link.target.endswith(_NOT_DATA)
        and not link.target.startswith(_NOT_HERE)
    }


def _finding(owner: Process, sharing: list[Process], fd: int, path: str) -> Finding:
    """Describe the shared file."""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        subject=path,
        summary=f"{len(sharing)} workers of {called(owner)} read through one open file: {path}",
        evidence=(
            f"descriptor {fd} is {path} in {called(owner)} and in {all_called(sharing)}",
            "the workers were forked, so it is one open file with one position",
        ),
        cause=(
            "A file opened before the fork has one position, shared by all workers. If two workers "
            "read it, one can move the position between the seek and the read of the other: wrong "
            "samples without an error, or errors of the decoder."
        ),
        advice=(
            "Open the file in each worker at first use (not in __init__), or read with os.pread or "
            "a memory map, which need no position. If no worker reads the file, nothing is wrong."
        ),
    )
