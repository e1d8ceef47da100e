"""Where the hook listens, a module for each part of torch or the standard library.

A wrapper calls the original first and keeps its own bookkeeping out of the way: `Session.record`
and `Session.note` never raise, and anything else they must survive is caught and told apart by
`errors.is_ours`.
"""

from __future__ import annotations

from . import (
    contexts,
    cuda,
    cuda_ipc,
    ends,
    faults,
    forking,
    loader,
    pickling,
    pools,
    processes,
    queues,
    sharing,
    stores,
    tickets,
)

TABLE = (
    *processes.POINTS,
    *ends.POINTS,
    *contexts.POINTS,
    *queues.POINTS,
    *pools.POINTS,
    *tickets.POINTS,
    *faults.POINTS,
    *pickling.POINTS,
    *sharing.POINTS,
    *loader.POINTS,
    *cuda.POINTS,
    *cuda_ipc.POINTS,
    *stores.POINTS,
    *forking.POINTS,
)
"""All patch points. Modules that are loaded are patched at once, in this order."""
