"""State that a forked child cannot use: locks of threads, thread pools, CUDA."""

from __future__ import annotations

import os
import sys

from .. import wire
from ..safe import foreign_exceptions
from ..transport import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context

POOLED = (
    "av",
    "cv2",
    "datasets",
    "faiss",
    "grpc",
    "h5py",
    "jax",
    "lmdb",
    "numba",
    "pyarrow",
    "ray",
    "tensorflow",
    "tokenizers",
    "zmq",
)
"""Modules whose native side keeps threads or handles that do not survive a fork."""
NATIVE = 48
"""Native threads that are examined."""
NOTED = 32
"""Most risks that are noted in one process."""
_UNNUMBERED = str.maketrans("", "", "0123456789")


def note_risks(session: Context, threads: int | None, noted: set[int]) -> None:
    """Note the other threads and handles of a process that is about to fork, once for each set.

    Python numbers its threads, `Thread-7 (work)`, and a program may fork once for each, for weeks:
    without the numbers they are one risk. Otherwise such notes would push all others out of memory,
    and fill the file that an autopsy reads.

    Args:
        session: Of the forking process.
        threads: Threads as the kernel counts them, the hook's own excluded.
        noted: Hashes of the risks noted in this process, to which this adds one.
    """
    cuda = getattr(sys.modules.get("torch.cuda"), "_initialized", False)
    names = sorted(python_threads())
    libraries = [name for name in POOLED if name in sys.modules]
    kinds = frozenset(name.translate(_UNNUMBERED) for name in names)
    risks = hash((kinds, (threads or 1).bit_length(), *libraries, cuda))
    if risks in noted or len(noted) >= NOTED:
        return
    noted.add(risks)
    session.note(
        "fork",
        threads=threads,
        python_threads=names[:32],
        native_threads=native_threads(session),
        torch_threads=_torch_threads(),
        libraries=libraries,
        cuda=bool(cuda),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        multiprocessing=session.system.get_ident() in session.births,
        loaders=len(session.loaders.show() or ()),
        sharer_descriptors=_sharer_descriptors(),
        frames=foreign_exceptions.frames_here(4),
    )


def python_threads() -> list[str]:
    """Names of Python's threads, without the calling one."""
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    main = getattr(sys.modules.get("threading"), "_main_thread", None)
    return [str(thread._name)[:64] for thread in tuple(active.values()) if thread is not main]


def native_threads(session: Context) -> list[str]:
    """Names of native threads, without the calling one and those with the program's name.

    A library names its threads (`pt_data_pin`, `grpc_global_tim`, `pt_autograd_0`); those of OpenMP
    have the name of the program.
    """
    os = session.system.os
    own = session.system.get_native_id()
    names: list[str] = []
    try:
        entries = os.listdir("/proc/self/task")[:NATIVE]
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return names
    for entry in entries:
        if int(entry) != own:
            try:
                comm = f"/proc/self/task/{entry}/comm"
                (fd,) = runtime_dir.opened(session.system, comm, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    name = os.read(fd, 32).decode(errors="replace").strip()
                finally:
                    runtime_dir.close(session.system, fd, comm)
            except OSError as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                continue  # it has ended since, or no descriptor is left
            # The hook's thread has ended in Python, but perhaps not yet in the kernel.
            if name != wire.THREAD_NAME.decode():
                names.append(name)
    return sorted(names)


def _torch_threads() -> int | None:
    """Threads that torch uses for one operator; a pool of several is broken in a child."""
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if count is None else int(count())


def _sharer_descriptors() -> int | None:
    """Descriptors not received yet: a plain fork keeps the address, but not the thread."""
    module = sys.modules.get("multiprocessing.resource_sharer")
    sharer: Any = getattr(module, "_resource_sharer", None)
    return None if getattr(sharer, "_address", None) is None else len(sharer._cache)
