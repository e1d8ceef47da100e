"""The patch points: what the hook replaces or reads in the standard library and in torch.

A wrapper calls the original first and passes its result or exception on unchanged. Its own work
raises nothing: `Session.record` and `Session.note` never do, and other exceptions are caught and
told apart from those of the program's signal handlers by `foreign_exceptions.is_ours`. If the
original raises, most wrappers record EXCEPTION and add a note `exception` (`Session.failed`).
"""

from __future__ import annotations

import sys

from ..lifecycle import fork
from ..lifecycle.patcher import Point, attribute
from . import (
    cuda,
    distributed,
    exits,
    loader,
    locks,
    pools,
    processes,
    queues,
    sharing,
)

_PROCESS = "multiprocessing.process"
_SHARER = "multiprocessing.resource_sharer"
_QUEUES = "multiprocessing.queues"
_STORAGE = "torch.storage"
_REDUCTIONS = sharing.REDUCTIONS
_LOADER = "torch.utils.data.dataloader"
_ITERATOR = loader.ITERATOR
_FETCH = "torch.utils.data._utils.fetch"

# fmt: off
# One row on at most two lines.
TABLE = (
    # Point(name, module, how, since): `attribute(path, wrap)` replaces one attribute of the module
    # by what `wrap` returns; any other function does something else once the module is imported.

    # processes.py: records PROCESS_START, PROCESS_JOIN; notes start, exception, unpicklable,
    # many-storages
    Point("handed models", _PROCESS, processes.stop_model_checks),
    Point("Process.start", _PROCESS, attribute("BaseProcess.start", processes.wrap_start)),
    Point("Process.join", _PROCESS, attribute("BaseProcess.join", processes.wrap_join)),
    Point("get_preparation_data", "multiprocessing.spawn",
          attribute("get_preparation_data", processes.wrap_get_preparation_data)),
    Point("start method", "multiprocessing.context", processes.watch_start_method),
    Point("reduction.dump", "multiprocessing.reduction", attribute("dump", processes.wrap_dump)),

    # exits.py: notes exit, kill, thread-died, exception
    Point("Process.run", _PROCESS, attribute("BaseProcess.run", exits.wrap_run)),
    Point("exit functions", "multiprocessing.util",
          attribute("_exit_function", exits.wrap_exit_function)),
    Point("Process._bootstrap", _PROCESS,
          attribute("BaseProcess._bootstrap", exits.wrap_bootstrap)),
    Point("os._exit", "os", attribute("_exit", exits.wrap_os_exit)),
    Point("signals to children", "multiprocessing.popen_fork",
          attribute("Popen._send_signal", exits.wrap_send_signal)),
    Point("end of main", "threading", exits.call_when_main_ends),
    Point("threading.excepthook", "threading",
          attribute("excepthook", exits.wrap_excepthook)),
    Point("resource sharer", _SHARER, exits.note_uncaught_in("resource sharer")),
    # It also reports what a child cannot unpickle or import: the server's loop is still running.
    Point("forkserver child", "multiprocessing.forkserver",
          exits.note_uncaught_in("main", "forkserver")),

    # queues.py: records QUEUE_PUT, QUEUE_GET; notes lost-item; gauges sites, queues, job
    Point("queue gauges", _QUEUES, queues.add_gauges),
    Point("Queue.put", _QUEUES, attribute("Queue.put", queues.wrap_put)),
    Point("Queue.get", _QUEUES, attribute("Queue.get", queues.wrap_get)),
    Point("JoinableQueue.put", _QUEUES, attribute("JoinableQueue.put", queues.wrap_put)),
    Point("SimpleQueue.put", _QUEUES, attribute("SimpleQueue.put", queues.wrap_put)),
    Point("SimpleQueue.get", _QUEUES, attribute("SimpleQueue.get", queues.wrap_get)),
    Point("Queue._on_queue_feeder_error", _QUEUES,
          attribute("Queue._on_queue_feeder_error", queues.wrap_feeder_error)),

    # locks.py: gauges locks
    Point("locks gauge", "multiprocessing.synchronize", locks.add_gauge),

    # pools.py: notes exception; gauges pools
    Point("pools gauge", "multiprocessing.util", pools.add_gauge),
    Point("Pool tasks", "multiprocessing.pool",
          attribute("ExceptionWithTraceback.__init__", pools.wrap_wrapping)),
    Point("executor tasks", "concurrent.futures.process",
          attribute("_ExceptionWithTraceback.__init__", pools.wrap_wrapping)),
    Point("multiprocess tasks", "multiprocess.pool",
          attribute("ExceptionWithTraceback.__init__", pools.wrap_wrapping)),
    Point("thread pool tasks", "concurrent.futures._base",
          attribute("Future.set_exception", pools.wrap_set_exception)),

    # sharing.py: records SHARE, REBUILD, CUDA_SHARE, CUDA_REBUILD, CACHE_SWEEP; notes
    # receive-failed; gauges shared_cache, sharer
    Point("_new_shared", _STORAGE,
          attribute("_StorageBase._new_shared", sharing.wrap_make_shared)),
    Point("share_memory_", _STORAGE,
          attribute("UntypedStorage.share_memory_", sharing.wrap_make_shared)),
    Point("reduce_storage", "torch.multiprocessing", sharing.replace_reducer),
    Point("SharedCache.__setitem__", _REDUCTIONS,
          attribute("SharedCache.__setitem__", sharing.wrap_setitem)),
    Point("SharedCache sweeps", _REDUCTIONS,
          attribute("SharedCache.free_dead_references", sharing.wrap_free_dead_references)),
    Point("storage_from_cache", _REDUCTIONS,
          attribute("storage_from_cache", sharing.wrap_storage_from_cache)),
    Point("shared_cache gauge", _REDUCTIONS, sharing.add_gauge),
    Point("SharedMemory", "multiprocessing.shared_memory",
          attribute("SharedMemory.__init__", sharing.wrap_shared_memory_init)),
    Point("DupFd.detach", _SHARER, attribute("DupFd.detach", sharing.wrap_detach)),
    Point("resource_sharer descriptors", _SHARER, sharing.add_sharer_gauge),

    # loader.py: records LOADER_START, LOADER_STOP, LOADER_NEXT, LOADER_PUT_INDEX,
    # LOADER_FETCH_BEGIN, LOADER_FETCH; notes foreign-shutdown; gauges loaders, worker
    Point("loader gauges", _LOADER, loader.add_gauges),
    Point("loader _reset", _LOADER, attribute(f"{_ITERATOR}._reset", loader.wrap_reset)),
    Point("loader _next_data", _LOADER,
          attribute(f"{_ITERATOR}._next_data", loader.wrap_next_data)),
    Point("loader _try_get_data", _LOADER, loader.wrap_try_get_data_if_waiting),
    Point("loader _try_put_index", _LOADER,
          attribute(f"{_ITERATOR}._try_put_index", loader.wrap_try_put_index)),
    Point("loader _shutdown_workers", _LOADER,
          attribute(f"{_ITERATOR}._shutdown_workers", loader.wrap_shutdown_workers)),
    Point("map fetch", _FETCH, attribute("_MapDatasetFetcher.fetch", loader.wrap_fetch)),
    Point("iterable fetch", _FETCH, attribute("_IterableDatasetFetcher.fetch", loader.wrap_fetch)),

    # cuda.py: records CUDA_INIT; notes cuda-init; gauges cuda (on request), cuda_lent
    Point("torch.cuda._queued_calls", "torch.cuda", cuda.call_when_initialised),
    Point("cuda allocator gauge", "torch.cuda", cuda.add_allocator_gauge),
    Point("_share_cuda_", _STORAGE, cuda.count_sends),

    # distributed.py: notes exception; gauges rendezvous, collectives
    Point("rendezvous store", "torch.distributed.rendezvous", distributed.watch_stores),
    Point("process groups", "torch.distributed.distributed_c10d", distributed.follow_groups),

    # lifecycle/fork.py: ends the hook's thread before a call and starts it again afterwards
    *(Point(f"os.{name}", "os", attribute(name, fork.wrap_single_threaded), "3.10")
      for name in fork.SINGLE_THREADED),
    *(Point(f"os.{name}", "os", attribute(name, fork.wrap_fork), "3.12")
      for name in fork.FORKS),

    # environment.py: under `mpwatch run` only, see `table`; passes the hook on to programs
)
# fmt: on
"""All patch points. Modules that are loaded are patched at once, in this order."""


def table() -> tuple[Point, ...]:
    """The patch points of this process: with those of `environment.py` under `mpwatch run`."""
    if "_mpwatch_startup" not in sys.modules:
        return TABLE
    from . import environment

    return TABLE + environment.POINTS
