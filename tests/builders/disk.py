"""A small file system behind a loop device, which a test freezes.

Whatever happens, a process that does nothing else thaws it after a while.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
THAW_S = 100.0
MIBS = {"ext4": 24, "xfs": 320, "btrfs": 128}
"""Size of the disk by file system; about the least that mkfs takes."""
NEEDS = (
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and freeze a disk"),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)),
        reason=f"needs {', '.join(TOOLS)} (e2fsprogs, util-linux)",
    ),
)


class Disk:
    """A file system that can be frozen; `run` in it is private to this user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it, with all its pages clean, as a snapshot does; thaw it in any case."""
        thaw = ["fsfreeze", "-u", str(self.folder)]
        watchdog = subprocess.Popen(
            ["sh", "-c", 'sleep "$0"; exec "$@"', str(THAW_S), *thaw], start_new_session=True
        )
        try:
            subprocess.run(["sync", "-f", str(self.folder)], check=True)
            subprocess.run(["fsfreeze", "-f", str(self.folder)], check=True)
            yield
            assert watchdog.poll() is None, "it was thawed before the test had seen enough"
        finally:
            subprocess.run(thaw, capture_output=True, check=False)
            os.killpg(watchdog.pid, 9)
            watchdog.wait()


@contextlib.contextmanager
def mounted_disk(folder: Path, *options: str, kind: str = "ext4") -> Iterator[Disk]:
    """Make and mount a disk.

    Args:
        folder: An empty directory.
        options: More of mkfs.
        kind: The file system.
    """
    image, point = folder / "image", folder / "mnt"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(MIBS[kind] << 20)
    subprocess.run([f"mkfs.{kind}", "-q", *options, str(image)], check=True)
    mount = subprocess.run(
        ["mount", "-o", "loop", str(image), str(point)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("this container may not mount a loop device")
    disk = Disk(point)
    try:
        disk.run.mkdir(mode=0o700)
        yield disk
    finally:
        subprocess.run(["fsfreeze", "-u", str(point)], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(point)], check=True)
