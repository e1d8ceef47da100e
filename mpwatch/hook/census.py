"""What a fork copies into a child that cannot use it: threads' locks, thread pools, CUDA."""

from __future__ import annotations

import os
import sys

from . import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session

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


class Census:
    """Notes the risks of a fork, once for each change of them."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: Any = None

    def take(self, session: Session, threads: int | None) -> None:
        """Note what is alive while this thread forks, if it is more than this thread.

        Args:
            session: Of the forking process.
            threads: Threads as the kernel counts them, the hook's own excluded.
        """
        cuda = getattr(sys.modules.get("torch.cuda"), "_initialized", False)
        if (threads or 1) <= 1 and not cuda:
            return
        names = sorted(python_threads())
        libraries = [name for name in POOLED if name in sys.modules]
        risks = (names, threads, libraries, cuda)
        if risks == self._noted:
            return
        self._noted = risks
        session.note(
            "fork",
            threads=threads,
            python_threads=names[:32],
            libraries=libraries,
            cuda=bool(cuda),
            omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
            multiprocessing=session.system.get_ident() in session.births,
            loaders=len(session.loaders.show() or ()),
            sharer_tickets=_sharer_tickets(),
            frames=errors.frames_here(3),
        )


def python_threads() -> list[str]:
    """Names of the threads that Python knows, the calling one excluded."""
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    main = getattr(sys.modules.get("threading"), "_main_thread", None)
    return [str(thread._name)[:64] for thread in tuple(active.values()) if thread is not main]


def _sharer_tickets() -> int | None:
    """Descriptors waiting to be fetched: a plain fork keeps the address, but not the thread."""
    module = sys.modules.get("multiprocessing.resource_sharer")
    sharer: Any = getattr(module, "_resource_sharer", None)
    return None if getattr(sharer, "_address", None) is None else len(sharer._cache)
