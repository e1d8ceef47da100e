"""Where the hook listens, a module for each part of torch or the standard library.

A wrapper calls the original first and keeps its own bookkeeping out of the way: `Session.record`
and `Session.note` never raise, and anything else they must survive is caught and told apart by
`errors.is_ours`.
"""

from __future__ import annotations

from . import (
    collectives,
    cuda,
    cuda_ipc,
    forking,
    loader,
    pickling,
    pools,
    process_exit,
    processes,
    queues,
    rendezvous,
    resource_sharer,
    sharing,
    start_method,
    thread_errors,
)

TABLE = (
    *processes.POINTS,
    *process_exit.POINTS,
    *start_method.POINTS,
    *queues.POINTS,
    *pools.POINTS,
    *resource_sharer.POINTS,
    *thread_errors.POINTS,
    *pickling.POINTS,
    *sharing.POINTS,
    *loader.POINTS,
    *cuda.POINTS,
    *cuda_ipc.POINTS,
    *rendezvous.POINTS,
    *collectives.POINTS,
    *forking.POINTS,
)
"""All patch points. Modules that are loaded are patched at once, in this order."""
