"""The target's own interpreter, run for a moment in a process of its own, as the target's user."""

from __future__ import annotations

import os
import subprocess

from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import Target


def check(target: Target) -> None:
    """Find out whether it can be run from here.

    Raises:
        Refused: It cannot; the message says why.
    """
    if not (target.shares_files and target.shares_pids):
        raise Refused("it runs in another container: its interpreter cannot be run from here")
    if not os.path.basename(target.exe).startswith("python"):
        raise Refused(f"{target.exe} embeds Python: it cannot be run as an interpreter")
    if not os.access(target.exe, os.X_OK):
        raise Refused(f"{target.exe} was replaced or cannot be executed by us")


def run(
    target: Target, code: str, *arguments: str, within_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run code in it, without `site` and with no more of the target's environment than it needs.

    The user may have made that interpreter do anything, so it runs as that user.

    Raises:
        OSError: It could not be started.
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    environment = {
        name: value for name, value in target.environment.items() if name == "LD_LIBRARY_PATH"
    }
    is_other = os.geteuid() != target.uid
    return subprocess.run(
        [target.exe, "-I", "-S", "-c", code, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=within_s,
        user=target.uid if is_other else None,
        group=target.gid if is_other else None,
        extra_groups=sorted(target.groups) if is_other else None,
        check=False,
    )
