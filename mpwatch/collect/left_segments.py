"""Named torch segments that lie in `/dev/shm` although their maker is gone."""

from __future__ import annotations

import os
import re

from mpwatch.model.ids import SegmentId
from mpwatch.model.segments import SegmentUse
from mpwatch.model.text import clean

PLACE = "/dev/shm"
LOOKED_AT = 5000
"""Names examined at most: a job on its way to the limit of mappings has sixty thousand files."""
KEPT = 200
_TORCH = re.compile(r"torch_(\d+)_")


def left_segments(proc: str, pid: int) -> tuple[SegmentUse, ...] | None:
    """List what nobody will remove any more, as the process sees it.

    The names carry pids of the job's own namespace, so they are looked up in the procfs that the
    job itself has mounted. Whether somebody else still maps a file cannot be seen from here.

    Args:
        proc: Where procfs is.
        pid: A process of the job; its namespaces count.

    Returns:
        At most `KEPT` segments, or `None` if the folder cannot be read.
    """
    root = f"{proc}/{pid}/root"
    found: list[SegmentUse] = []
    living: dict[str, bool] = {}
    try:
        with os.scandir(f"{root}{PLACE}") as listing:
            for index, entry in enumerate(listing):
                if index >= LOOKED_AT or len(found) >= KEPT:
                    break
                match = _TORCH.match(entry.name)
                if match is None:
                    continue
                maker = match[1]
                if maker not in living:
                    living[maker] = os.path.exists(f"{root}/proc/{maker}")
                use = None if living[maker] else _examined(entry, int(maker))
                if use is not None:
                    found.append(use)
    except OSError:
        return None
    return tuple(found)


def _examined(entry: os.DirEntry[str], maker: int) -> SegmentUse | None:
    """Size and age of one file; `None` if it has gone meanwhile."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return SegmentUse(
        segment=SegmentId(stat.st_dev, stat.st_ino),
        path=clean(f"{PLACE}/{entry.name}"),
        kind="torch-named",
        is_linked=True,
        creator_pid=maker,
        size_bytes=stat.st_size,
        allocated_bytes=stat.st_blocks * 512,
        changed_wall_s=stat.st_ctime,
    )
