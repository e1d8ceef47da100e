"""Bounds of the demonstrations, so that they can fail without harm.

A program calls `begin` once, in its main process. From then on its time is limited, it has a
temporary directory, and a guardian outside its process tree kills the processes and removes the
files that it leaves, also when it is killed. Other functions lower a limit for this program, or
simulate an accelerator.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import importlib.util
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import mpwatch.demo.guardian

_MENDED = "MPWATCH_DEMO_MENDED"
_CUDA = "libtorch_cuda.so"
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_MS_REC_PRIVATE = 0x4000 | 0x40000  # linux/mount.h: MS_REC | MS_PRIVATE


def begin(about: str | None, *, seconds: float = 120.0, outlive_s: float = 0.0) -> float:
    """Read the arguments, start the guardian, and return the seconds this program may run.

    Args:
        about: The program's docstring, for `--help`.
        seconds: The default of `--seconds`.
        outlive_s: Seconds for which processes that outlive the main process may run; zero except
            for programs that show such processes.
    """
    if multiprocessing.parent_process() is not None:
        return seconds  # a spawned child runs the main module again; the guardian has it already
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=seconds, help="how long to run")
    parser.add_argument("--mended", action="store_true", help="run the healthy variant")
    options = parser.parse_args()
    seconds = options.seconds
    if options.mended:
        os.environ[_MENDED] = "yes"  # for all processes that it starts
    folder = tempfile.mkdtemp(prefix="mpwatch-demo-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # By these two the guardian recognises the program's processes: executed programs inherit the
    # environment, forked processes the open file.
    os.environ["MPWATCH_DEMO"] = folder
    os.open(os.path.join(folder, "demonstration"), os.O_CREAT | os.O_RDWR)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _start_guardian(str(os.getpid()), str(seconds), str(outlive_s), folder)
    return seconds


def mended() -> bool:
    """Whether this program runs as its healthy variant."""
    return _MENDED in os.environ or "--mended" in sys.argv


def tiny_shm(mib: int, *, files: int = 0) -> None:
    """Give this process and its children a `/dev/shm` of their own.

    This is like the 64 MiB of a container, with a size that fills in seconds.

    Args:
        mib: Its size, MiB.
        files: How many files it may hold; the default if 0.
    """
    problem = _mount_shm(mib, files)
    if problem:
        _give_up(
            "this program needs the right to mount a small /dev/shm of its own "
            f"({problem}): run it as root or under `unshare -rm`"
        )


def _mount_shm(mib: int, files: int = 0) -> str:
    """Mount it, and return the error as text; empty if it was mounted."""
    options = b"size=%dm" % mib + (b",nr_inodes=%d" % files if files else b"")
    libc = ctypes.CDLL(None, use_errno=True)
    done = (
        libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None) == 0
        and libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, options) == 0
    )
    return "" if done else os.strerror(ctypes.get_errno())


@functools.cache
def may_mount() -> bool:
    """Whether `tiny_shm` works here: root in a container often may not mount."""
    child = os.fork()
    if child == 0:
        os._exit(bool(_mount_shm(1)))
    return os.waitpid(child, 0)[1] == 0


@functools.cache
def may_limit() -> bool:
    """Whether `small_cgroup` works here, for memory and for processes."""
    return all(map(_has_cgroup, ("memory", "pids")))


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU, and a torch built for CUDA; torch is not imported."""
    torch = importlib.util.find_spec("torch")
    library = os.path.join(os.path.dirname(torch.origin or ""), "lib", _CUDA) if torch else ""
    return os.path.exists("/dev/nvidia0") and os.path.exists(library)


def _has_cgroup(controller: str) -> bool:
    """Whether a cgroup can be created that has a limit of this controller."""
    found = _made_cgroup(controller, f"mpwatch-demo-probe-{os.getpid()}")
    if found is None:
        return False
    os.rmdir(os.path.dirname(found))
    return True


def _made_cgroup(controller: str, name: str) -> str | None:
    """The file with the limit of a new cgroup that has this controller; `None` if there is none.

    In version 2 a cgroup with processes in it gives its children no controllers, so the new one is
    beside that of this process, or beside one of its ancestors: the nearest that has the
    controller and may be written to.
    """
    membership = Path("/proc/self/cgroup").read_text()
    for parent, file in cgroup_folders(membership, controller):
        group = os.path.join(parent, name)
        try:
            os.mkdir(group)
        except OSError:
            continue
        limit = os.path.join(group, file)
        if os.path.exists(limit):
            return limit
        os.rmdir(group)
    return None


def small_cgroup(controller: str, limit: int) -> None:
    """Move this process, and so its later children, into a cgroup of its own with one limit.

    Args:
        controller: `memory` or `pids`.
        limit: Bytes or processes.
    """
    made = _made_cgroup(controller, f"mpwatch-demo-{os.getpid()}")
    if made is not None:
        group = os.path.dirname(made)
        with open(os.path.join(tempfile.gettempdir(), "cgroup"), "w") as note:
            note.write(group)
        with contextlib.suppress(OSError):  # no right to move itself there: told below
            _write(made, str(limit))
            _write(os.path.join(group, "cgroup.procs"), str(os.getpid()))
            return
    _give_up(
        f"this program needs the right to make a cgroup with a {controller} limit: run as root"
    )


def cgroup_folders(membership: str, controller: str) -> Iterator[tuple[str, str]]:
    """Where a cgroup with a limit may be made, and the name of the file with its limit.

    Args:
        membership: What /proc/self/cgroup says.
        controller: `memory` or `pids`.
    """
    limits = {"pids": "pids.max", "memory": "memory.limit_in_bytes"}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            yield f"/sys/fs/cgroup/{controllers}{path}", limits[controller]
        elif not controllers:
            own = PurePosixPath(path)
            for each in (own, *own.parents):
                yield f"/sys/fs/cgroup{each}", f"{controller}.max"


def simulate_accelerator() -> None:
    """Let a DataLoader start its pin-memory thread on a machine without an accelerator.

    Replaces the functions of torch that this thread calls (torch 2.13). Threads, queues and forks
    stay torch's own; pinning returns the tensor itself.
    """
    import torch

    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: torch.device("cpu")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _index: None
    torch.Tensor.pin_memory = lambda tensor, *_device: tensor


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _start_guardian(*arguments: str) -> None:
    """Start the guardian, which is outside this process tree when the function returns."""
    script = mpwatch.demo.guardian.__file__
    subprocess.run(
        [sys.executable, "-I", "-S", script, *arguments],
        check=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _give_up(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)
