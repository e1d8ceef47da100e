"""Tensors on their way between processes: `torch.multiprocessing.reductions`.

Both sides of a transfer pass through `SharedCache.__setitem__` with the same key: inode and device
of the segment (file_descriptor), its name (file_system), or the CUDA handle. So the sender is heard
in ForkingPickler's table and in the cache, the receiver in the cache alone, and the `rebuild_*`
functions, which pickles refer to by name, remain torch's own objects.
"""

from __future__ import annotations

import sys

from .. import errors, wire
from ..patching import Point, attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..patching import Undo
    from ..session import Session

_SWEPT_LIMIT = 4096
"""Entries of SharedCache looked at for a gauge."""


def keys_of(cache_key: Any) -> tuple[int, int]:
    """Key and second key of a record, out of a key of SharedCache."""
    if type(cache_key) is tuple:
        first, second = cache_key
        if type(first) is bytes:  # CUDA at the receiver: handle and offset
            return wire.name_key(first), 0
        return first, second
    if type(cache_key) is bytes:
        return wire.name_key(cache_key), 0
    return hash(cache_key) & 0xFFFFFFFFFFFFFFFF, 0


def size_of(reference: Any) -> int:
    """Bytes of a storage that SharedCache refers to, 0 if it is no more."""
    storage = sys.modules["torch"].UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else int(storage.nbytes())


def _reduce_storage(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, here = session.record, session.system.monotonic_ns, session.here
    shared, suspect = session.origins.shared, session.items.views.suspect

    def reduce_storage(storage: Any) -> Any:
        began_ns = now()
        was_shared = storage.is_shared()
        if not was_shared:
            suspect(storage)
        here.shared_key = None
        here.shares += 1
        try:
            result = original(storage)
        except BaseException as error:
            session.failed(wire.SHARE, began_ns, error)
            errors.unframe(error)
            raise
        flags = 0 if was_shared else wire.FLAG_COPIED
        arguments = result[1]
        cache_key = here.shared_key
        if cache_key is None:
            record(wire.SHARE, began_ns, wire.FLAG_EMPTY)
            return result
        if type(cache_key) is bytes:
            flags |= wire.FLAG_FILE_SYSTEM
            size = arguments[3]
        else:
            size = arguments[2]
            if type(arguments[1]).__name__ == "_DupFd":
                flags |= wire.FLAG_SPAWNING
        key, key2 = keys_of(cache_key)
        record(wire.SHARE, began_ns, flags, size, key, key2, here.entries)
        shared(storage, was_shared, size, cache_key)
        return result

    return reduce_storage


def _register(module: ModuleType, session: Session) -> Undo:
    """Put the wrapper into ForkingPickler's table, wherever torch's own function stands."""
    original = module.reductions.reduce_storage
    pickler = sys.modules["multiprocessing.reduction"].ForkingPickler
    table: dict[type, Any] = pickler._extra_reducers
    ours = _reduce_storage(original, session)
    types = [kind for kind, reduce in tuple(table.items()) if reduce is original]
    if not types:
        raise LookupError("ForkingPickler does not know reduce_storage")
    for kind in types:
        pickler.register(kind, ours)

    def undo() -> None:
        for kind in types:
            if table.get(kind) is ours:
                pickler.register(kind, original)

    return undo


def _making(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    made, now = session.origins.made, session.system.monotonic_ns
    suspect = session.items.views.suspect

    def make_shared(holder: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        if not isinstance(holder, type):
            suspect(holder)
        try:
            storage = original(holder, *args, **kwargs)
        except BaseException as error:
            session.failed(wire.SHARE, began_ns, error)
            errors.unframe(error)
            raise
        made(storage)
        return storage

    return make_shared


def _setitem(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, here = session.record, session.system.monotonic_ns, session.here

    def setitem(self: Any, key: Any, reference: Any) -> None:
        before = len(self)
        began_ns = now()
        original(self, key, reference)
        after = len(self)
        here.entries = after
        here.shared_key = key
        missed = here.missed_key
        if missed is not None and missed == key:
            here.missed_key = None
            rebuilt(here.began_ns, key, reference, after)
        elif type(key) is bytes and not key.startswith(b"/"):
            shared = wire.name_key(key)
            record(wire.CUDA_SHARE, began_ns, 0, size_of(reference), shared)
        if after < before:
            record(wire.CACHE_SWEEP, began_ns, 0, before + 1 - after, 0, 0, after)

    def rebuilt(began_ns: int, cache_key: Any, reference: Any, entries: int) -> None:
        is_cuda = type(cache_key) is tuple and type(cache_key[0]) is bytes
        kind = wire.CUDA_REBUILD if is_cuda else wire.REBUILD
        flags = wire.FLAG_FILE_SYSTEM if type(cache_key) is bytes else 0
        key, key2 = keys_of(cache_key)
        record(kind, began_ns, flags, size_of(reference), key, key2, entries)

    return setitem


def _storage_from_cache(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, here = session.record, session.system.monotonic_ns, session.here

    def storage_from_cache(cls: Any, cache_key: Any) -> Any:
        began_ns = here.detached_ns or now()
        here.detached_ns = 0
        storage = original(cls, cache_key)
        if storage is None:
            here.missed_key, here.began_ns = cache_key, began_ns
            return storage
        key, key2 = keys_of(cache_key)
        flags = wire.FLAG_CACHED | (wire.FLAG_FILE_SYSTEM if type(cache_key) is bytes else 0)
        record(wire.REBUILD, began_ns, flags, storage.nbytes(), key, key2, here.entries)
        return storage

    return storage_from_cache


def _cache_gauge(module: ModuleType, session: Session) -> Undo:
    cache = module.shared_cache

    def shared_cache() -> dict[str, Any]:
        references = list(cache.values())
        looked_at = references[:_SWEPT_LIMIT]
        expired = sum(1 for reference in looked_at if reference.expired())
        return {"entries": len(references), "limit": cache.limit, "expired": expired}

    session.gauges["shared_cache"] = shared_cache
    return lambda: session.drop_gauges("shared_cache")


_REDUCTIONS = "torch.multiprocessing.reductions"
POINTS = (
    Point("_new_shared", "torch.storage", attribute("_StorageBase._new_shared", _making)),
    Point("share_memory_", "torch.storage", attribute("UntypedStorage.share_memory_", _making)),
    Point("reduce_storage", "torch.multiprocessing", _register),
    Point("SharedCache.__setitem__", _REDUCTIONS, attribute("SharedCache.__setitem__", _setitem)),
    Point("storage_from_cache", _REDUCTIONS, attribute("storage_from_cache", _storage_from_cache)),
    Point("shared_cache gauge", _REDUCTIONS, _cache_gauge),
)
