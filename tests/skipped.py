"""What was skipped in a run of the tests, in one line that says what to install or to set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

REMEDIES = (
    ("MPWATCH_ALL_DEMOS", "MPWATCH_ALL_DEMOS=1 with -n 0"),
    ("MPWATCH_CHROOTS", "MPWATCH_CHROOTS=DIR:DIR, directories made by debootstrap with python3"),
    ("MPWATCH_MUSL_PYTHON", "MPWATCH_MUSL_PYTHON=PATH of a Python linked with musl"),
    (
        "MPWATCH_DEBIAN",
        "root, MPWATCH_PYZ and MPWATCH_DEBIAN, see tests/integration/nodes/test_single_file.py",
    ),
    ("pyenv", "pyenv with Python 3.10, 3.12 and 3.13"),
    ("empty parameter set for (python)", "pyenv with Python 3.10, 3.12 and 3.13"),
    ("could not import 'textual_serve'", "pip install -e '.[serve]'"),
    ("mpwatch[ray]", "pip install -e '.[ray]'"),
    ("ray[train]", "pip install 'ray[train]'"),
    ("no virtual network", "a privileged container with iproute2"),
    ("forbids ptrace", "sysctl kernel.yama.ptrace_scope=0, or a container with SYS_PTRACE"),
    ("may not mount", "a privileged container"),
    ("no workflows", "a checkout"),
    ("only root", "root"),
    ("needs root", "root"),
    ("namespaces of its own", "root"),
    ("run as root", "root, and a writable cgroup"),
    ("xfsprogs", "apt install xfsprogs btrfs-progs"),
    ("e2fsprogs", "apt install e2fsprogs util-linux"),
    ("setpriv", "apt install util-linux"),
    ("util-linux", "apt install util-linux"),
    ("no writable freezer", "root, and a writable cgroup"),
    ("no C compiler", "apt install gcc"),
    ("no IPv6", "a loopback interface with IPv6"),
    ("gdb", "apt install gdb"),
    ("MPWATCH_SLURM", "MPWATCH_SLURM=DIR, see tests/integration/nodes/test_slurm.py"),
    ("MPWATCH_PYZ", "MPWATCH_PYZ=PATH of a single file, or MPWATCH_ALL_DEMOS=1 and shiv"),
    ("sshd", "apt install openssh-server, or MPWATCH_SSHD=PATH"),
    ("CONFIG_SCHED_DEBUG", "a kernel with CONFIG_SCHED_DEBUG"),
    ("/proc/PID/timers", "a kernel with CONFIG_CHECKPOINT_RESTORE and CONFIG_POSIX_TIMERS"),
    ("musl has", "a system with glibc"),
    ("time namespaces", "Linux 5.6 or newer, with time namespaces"),
    ("gcc", "apt install gcc"),
    ("strip", "apt install binutils"),
    ("is not installed", "a compiler: apt install gcc clang"),
    ("libpython", "apt install libpython3-dev"),
    ("cannot be read by others", "an installation that other users can read"),
    ("every user can run", "apt install python3"),
    ("x86-64", "an x86-64 processor"),
    ("needs a tmpfs", "a writable /dev/shm"),
    ("lie in memory", "TMPDIR on a disk"),
    ("others need no ctypes", "Python 3.10"),
    ("no table of columns", "Python 3.11"),
    ("sys.monitoring", "Python 3.12"),
    ("new in Python 3.12", "Python 3.12"),
    ("variables cannot be read unnoticed", "Python before 3.13"),
    ("python>=3.14", "Python 3.14"),
    ("python<3.13", "Python before 3.13"),
    ("numpy", "numpy 2"),
    ("Python 3.10", "Python 3.11"),
    ("pyproject.toml pins", "the pinned versions: pip install -e '.[test]'"),
    ("GPU", "an NVIDIA GPU"),
    ("state D", "a device that holds a process in state D"),
    ("fixed in ", "a torch that is no longer supported"),
    ("native threads of its own", "a library with native threads (OpenCV)"),
    ("torch", "torch: pip install -e '.[test]'"),
)
"""Part of the reason that a test gives for being skipped, and what makes it run."""


def summary(reasons: Iterable[str]) -> str:
    """One line: how many tests were skipped and what they need, the largest group first.

    A reason without an entry in `REMEDIES` is quoted. Empty if nothing was skipped.
    """
    groups = Counter(remedy(reason) or reason.removeprefix("Skipped: ") for reason in reasons)
    parts = [f"{count} need {needed}" for needed, count in groups.most_common()]
    return f"{sum(groups.values())} skipped: {'; '.join(parts)}" if parts else ""


def remedy(reason: str) -> str | None:
    """What makes a test run that was skipped for this reason, or `None` if that is not known."""
    return next((needed for part, needed in REMEDIES if part in reason), None)
