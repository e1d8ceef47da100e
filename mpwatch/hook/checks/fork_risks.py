"""What a fork copies into a child that cannot use it: threads' locks, thread pools, CUDA."""

from __future__ import annotations

import os
import sys

from ..safe import foreign_exceptions
from ..transport import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..session import Session

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
OWN = "mpwatch-hook"
"""Name of the hook's thread, `server.COMM`."""
NATIVE = 48
"""Native threads looked at."""
NOTED = 32
"""Risks noted in one process; a program that has more of them is past counting."""
_UNNUMBERED = str.maketrans("", "", "0123456789")


class ForkRisks:
    """Notes the risks of a fork, once each.

    Python numbers its threads, `Thread-7 (work)`, and a program may fork once for each, for weeks:
    without the numbers they are one risk. Else such notes would push all others out of memory, and
    fill the file that an autopsy reads.
    """

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: set[int] = set()

    def restart(self) -> None:
        """Have noted nothing: this is a forked child, and its notes are its own."""
        self._noted = set()

    def take(self, session: Session, threads: int | None) -> None:
        """Note what is alive while this thread forks, if it is more than this thread.

        Args:
            session: Of the forking process.
            threads: Threads as the kernel counts them, the hook's own excluded.
        """
        try:
            self._take(session, threads)
        except Exception as error:
            # The fork has more important steps to come.
            if not foreign_exceptions.is_ours(error):
                raise
            session.problems.append(f"census: {type(error).__name__}: {error}"[:200])

    def _take(self, session: Session, threads: int | None) -> None:
        cuda = getattr(sys.modules.get("torch.cuda"), "_initialized", False)
        if (threads or 1) <= 1 and not cuda:
            return
        names = sorted(python_threads())
        libraries = [name for name in POOLED if name in sys.modules]
        kinds = frozenset(name.translate(_UNNUMBERED) for name in names)
        risks = hash((kinds, (threads or 1).bit_length(), *libraries, cuda))
        if risks in self._noted or len(self._noted) >= NOTED:
            return
        self._noted.add(risks)
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
            sharer_tickets=_sharer_tickets(),
            frames=foreign_exceptions.frames_here(4),
        )


def python_threads() -> list[str]:
    """Names of the threads that Python knows, the calling one excluded."""
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    main = getattr(sys.modules.get("threading"), "_main_thread", None)
    return [str(thread._name)[:64] for thread in tuple(active.values()) if thread is not main]


def native_threads(session: Session) -> list[str]:
    """Names of the kernel's threads but the calling one, where they are not simply the program's.

    A library names its threads (`pt_data_pin`, `grpc_global_tim`, `pt_autograd_0`); those of OpenMP
    bear the name of the program.
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
                    os.close(fd)
            except OSError as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                continue  # it has ended since, or no descriptor is left
            # The hook's thread has left Python by now, but not always the kernel.
            if name != OWN:
                names.append(name)
    return sorted(names)


def _torch_threads() -> int | None:
    """Threads that torch uses for one operator: more than one, and a fork copies a broken pool."""
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if count is None else int(count())


def _sharer_tickets() -> int | None:
    """Descriptors waiting to be fetched: a plain fork keeps the address, but not the thread."""
    module = sys.modules.get("multiprocessing.resource_sharer")
    sharer: Any = getattr(module, "_resource_sharer", None)
    return None if getattr(sharer, "_address", None) is None else len(sharer._cache)
