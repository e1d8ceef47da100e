"""CUDA: its initialisation, its allocator, memory sent to others. The hook initialises nothing."""

from __future__ import annotations

from .. import checks, wire
from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

ON_REQUEST = ("cuda",)
"""Gauges that are read only for a request that names them: see `add_allocator_gauge`."""


def call_when_initialised(module: ModuleType, session: Context) -> Undo:
    """Record the initialisation of CUDA, by an entry in torch's list of calls to make then.

    `_queued_calls` holds pairs of a function and the stack that queued it, torch 2.1 to 2.15. Torch
    does not read it again once CUDA is initialised.
    """
    queue: list[Any] = module._queued_calls

    def initialised() -> None:
        session.record(wire.CUDA_INIT, session.system.monotonic_ns())
        session.note(
            "cuda-init",
            frames=foreign_exceptions.frames_here(1, 24),
            tid=session.system.get_native_id(),
        )

    entry: tuple[Any, list[str]] = (initialised, [])
    if not module._initialized:
        queue.append(entry)

    def undo() -> None:
        if entry in queue:
            queue.remove(entry)

    return undo


def add_allocator_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `cuda`, read only for a request that names it, once CUDA is initialised.

    `torch._C._cuda_memoryStats` takes the lock of the caching allocator and keeps the GIL meanwhile
    (`THCPModule_memoryStats` in torch/csrc/cuda/Module.cpp, torch 2.1 to 2.7). A thread that frees
    cached memory holds that lock while `cudaFree` waits for running kernels, and has released the
    GIL (`THCPModule_emptyCache`). If a kernel never ends, the reading would therefore stop
    the whole process, and no time limit applies to a lock in C++. So it is not among the gauges
    that are read at intervals: a request has to name it (`wire.ASKS`).
    """

    def cuda() -> dict[str, Any] | None:
        if not module._initialized or module._is_in_bad_fork():
            return None
        found: dict[str, Any] = checks.load_on_hook_thread("cuda_allocator").read(module)
        return found

    session.gauges["cuda"] = cuda
    return lambda: session.drop_gauges("cuda")


def _share_cuda(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    lent: Any = None

    def _share_cuda_(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal lent
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            session.failed(wire.CUDA_SHARE, session.system.monotonic_ns(), error)
            foreign_exceptions.unframe(error)
            raise
        try:
            if lent is None:
                lent = checks.load("cuda_lent").Lent(session.system)
                session.gauges["cuda_lent"] = lent.show
            lent.send(result)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
            session.patcher.missing["cuda_lent"] = f"{type(error).__name__}: {error}"[:200]
        return result

    return _share_cuda_


def count_sends(module: ModuleType, session: Context) -> Undo:
    """Count sends of CUDA memory by `checks.cuda_lent`; the gauge is added with the first one."""
    undo = attribute("TypedStorage._share_cuda_", _share_cuda)(module, session)

    def undo_both() -> None:
        session.drop_gauges("cuda_lent")
        undo()

    return undo_both
