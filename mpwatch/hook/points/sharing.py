"""Tensors and descriptors sent between processes.

Tensors: `torch.multiprocessing.reductions`. The descriptors of tensors, and those that a program
sends itself: `multiprocessing.resource_sharer`.

Both sides of a transfer call `SharedCache.__setitem__` with the same key: inode and device
of the segment (file_descriptor), its name (file_system), or the CUDA handle. So the sender is
observed in ForkingPickler's table and in the cache, the receiver in the cache alone, and the
`rebuild_*` functions, which pickles refer to by name, remain torch's own objects.
"""

from __future__ import annotations

import itertools
import operator
import sys

from .. import checks, wire
from ..safe import foreign_exceptions
from ..safe.one_call import through
from ..state.thread_state import SHARING

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo


REDUCTIONS = "torch.multiprocessing.reductions"
_SWEPT_LIMIT = 4096
"""Entries of SharedCache examined for a gauge."""


def keys_of(cache_key: Any) -> tuple[int, int]:
    """Key and second key of a record for a key of SharedCache."""
    if type(cache_key) is tuple:
        first, second = cache_key
        if type(first) is bytes:  # CUDA at the receiver: handle and offset
            return wire.name_key(first), 0
        return first, second
    if type(cache_key) is bytes:
        return wire.name_key(cache_key), 0
    return hash(cache_key) & 0xFFFFFFFFFFFFFFFF, 0


def size_of(reference: Any) -> int:
    """Size in bytes of a storage in SharedCache, 0 if it has been freed."""
    storage = sys.modules["torch"].UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else int(storage.nbytes())


def make_reducer(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """A reducer of storages for `ForkingPickler` that calls the original and records SHARE."""
    reductions: Any = sys.modules[REDUCTIONS]
    record, now, here = session.record, session.system.monotonic_ns, session.here
    origins, sampled = session.origins, session.origins.shared
    suspect = session.start_checks.suspect
    share, copied, entries = wire.SHARE, wire.FLAG_COPIED, reductions.shared_cache.__len__
    by_descriptor = reductions.rebuild_storage_fd
    dup_fd = sys.modules["multiprocessing.resource_sharer"].DupFd
    is_resizable = getattr(sys.modules["torch"].UntypedStorage, "resizable", _unknown)

    def reduce_storage(storage: Any) -> Any:
        began_ns = now()
        own = here.own
        was_shared = False
        try:
            was_shared = storage.is_shared()
            # A numpy array over it makes it non-resizable; `share_memory_` does not.
            if not was_shared and not is_resizable(storage):
                suspect(storage)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        own.shared_key = SHARING
        try:
            result = original(storage)
        except BaseException as error:
            own.shared_key = None
            session.failed(share, began_ns, error)
            foreign_exceptions.unframe(error)
            raise
        try:
            flags = 0 if was_shared else copied
            if result[0] is not by_descriptor or own.shared_key is SHARING:
                _shared_otherwise(session, storage, flags, began_ns, result[1])
                return result
            _, handle, size = result[1]
            key, key2 = own.shared_key
            if handle.__class__ is not dup_fd:
                flags |= wire.FLAG_SPAWNING
                own.shares += 1
            record(share, began_ns, flags, size, key, key2, entries())
            if not was_shared and origins.left > size and not origins.places:
                origins.left -= size
            elif origins.places or not was_shared:
                sampled(storage, was_shared, size, own.shared_key)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        return result

    return reduce_storage


def _shared_otherwise(
    session: Context, storage: Any, flags: int, began_ns: int, arguments: Any
) -> None:
    """Record a storage that is shared by name, or that is empty."""
    own = session.here.own
    own.shares += 1
    cache_key, own.shared_key = own.shared_key, None
    if cache_key is SHARING:
        session.record(wire.SHARE, began_ns, wire.FLAG_EMPTY)
        return
    entries, size = len(sys.modules[REDUCTIONS].shared_cache), arguments[3]
    flags |= wire.FLAG_FILE_SYSTEM
    session.record(wire.SHARE, began_ns, flags, size, *keys_of(cache_key), entries)
    session.origins.shared(storage, not flags & wire.FLAG_COPIED, size, cache_key)


def _unknown(storage: Any) -> bool:
    """Replacement for `UntypedStorage.resizable` where torch has none."""
    return False


def replace_reducer(module: ModuleType, session: Context) -> Undo:
    """Replace torch's function in ForkingPickler's table, for each type that has it."""
    original = module.reductions.reduce_storage
    pickler = sys.modules["multiprocessing.reduction"].ForkingPickler
    table: dict[type, Any] = pickler._extra_reducers
    ours = make_reducer(original, session)
    types = [kind for kind, reduce in tuple(table.items()) if reduce is original]
    if not types:
        raise LookupError("ForkingPickler does not know reduce_storage")

    def undo() -> None:
        for kind in types:
            if table.get(kind) is ours:
                pickler.register(kind, original)

    session.patcher.prepared = undo
    for kind in types:
        pickler.register(kind, ours)
    return undo


def wrap_make_shared(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Sample the line that allocates shared memory."""
    origins, made, now = session.origins, session.origins.made, session.system.monotonic_ns
    suspect = session.start_checks.suspect

    def make_shared(holder: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(holder, type):
            suspect(holder)
        try:
            storage = original(holder, *args, **kwargs)
        except BaseException as error:
            session.failed(wire.SHARE, now(), error)
            foreign_exceptions.unframe(error)
            raise
        try:
            left = origins.left - storage.nbytes()
            if left > 0:
                origins.left = left
            else:
                made(storage)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        return storage

    return make_shared


def wrap_setitem(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record a storage that enters the cache: shared here, or received."""
    record, now, here = session.record, session.system.monotonic_ns, session.here
    alive, rebuild = sys.modules["torch"].UntypedStorage._new_with_weak_ptr, wire.REBUILD

    def setitem(self: Any, key: Any, reference: Any) -> None:
        try:
            original(self, key, reference)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        try:
            own = here.own
            if own.shared_key is SHARING:
                own.shared_key = key
            elif own.missed_key == key:
                began_ns = own.began_ns
                own.missed_key = None
                own.began_ns = 0
                storage = alive(reference.cdata)
                size = 0 if storage is None else storage.nbytes()
                if key.__class__ is tuple and key[0].__class__ is int:
                    first, second = key
                    record(rebuild, began_ns, 0, size, first, second, len(self))
                else:
                    _rebuilt_otherwise(session, began_ns, key, size, 0)
            elif type(key) is bytes and not key.startswith(b"/"):
                record(wire.CUDA_SHARE, now(), 0, size_of(reference), wire.name_key(key))
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    return setitem


def _rebuilt_otherwise(
    session: Context, began_ns: int, cache_key: Any, size: int, flags: int
) -> None:
    """Record a storage received by name, or from a GPU."""
    kind, entries = wire.REBUILD, len(sys.modules[REDUCTIONS].shared_cache)
    if type(cache_key) is bytes:
        flags |= wire.FLAG_FILE_SYSTEM
    elif not flags:
        kind = wire.CUDA_REBUILD
    session.record(kind, began_ns, flags, size, *keys_of(cache_key), entries)


def wrap_free_dead_references(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record each removal of freed storages from the cache."""
    record, now = session.record, session.system.monotonic_ns

    def free_dead_references(self: Any) -> Any:
        before, began_ns = len(self), now()
        try:
            result = original(self)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        after = len(self)
        record(wire.CACHE_SWEEP, began_ns, 0, before - after, 0, 0, after)
        return result

    return free_dead_references


def wrap_storage_from_cache(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record a storage found in the cache, or remember that it was not there."""
    record, now, here = session.record, session.system.monotonic_ns, session.here
    rebuild, cached = wire.REBUILD, wire.FLAG_CACHED
    entries = sys.modules[REDUCTIONS].shared_cache.__len__

    def storage_from_cache(cls: Any, cache_key: Any) -> Any:
        storage = original(cls, cache_key)
        try:
            own = here.own
            if storage is None:
                own.missed_key = cache_key
                if not own.began_ns:
                    own.began_ns = now()
                return storage
            began_ns = own.began_ns or now()
            own.began_ns = 0
            size = storage.nbytes()
            if cache_key.__class__ is tuple and cache_key[0].__class__ is int:
                key, key2 = cache_key
                record(rebuild, began_ns, cached, size, key, key2, entries())
            else:
                _rebuilt_otherwise(session, began_ns, cache_key, size, cached)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        return storage

    return storage_from_cache


def add_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `shared_cache`."""
    cache = module.shared_cache
    is_expired = sys.modules["torch"].UntypedStorage._expired

    def shared_cache() -> dict[str, Any]:
        # In one call: a reference held here while its entry is removed would be freed here.
        looked_at = itertools.islice(dict.values(cache), _SWEPT_LIMIT)
        expired = sum(through(looked_at, operator.attrgetter("cdata"), is_expired))
        return {"entries": len(cache), "limit": cache.limit, "expired": expired}

    session.gauges["shared_cache"] = shared_cache
    return lambda: session.drop_gauges("shared_cache")


def wrap_shared_memory_init(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note lines that create blocks: see `checks.shared_memory`."""
    wrapper: Callable[..., Any] = checks.load("shared_memory").wrap_init(original, session)
    return wrapper


def wrap_detach(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note a descriptor that could not be received."""
    here, now = session.here, session.system.monotonic_ns

    def detach(self: Any) -> Any:
        here.own.began_ns = now()
        try:
            return original(self)
        except BaseException as error:
            address, key = getattr(self, "_id", (None, None))
            session.note(
                "receive-failed",
                address=str(address)[:256],
                key=key,
                type=foreign_exceptions.type_of(error),
                text=foreign_exceptions.text_of(error),
                tid=session.system.get_native_id(),
            )
            foreign_exceptions.unframe(error)
            raise

    return detach


def add_sharer_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `sharer`: the descriptors that were sent, and those not received yet."""
    sharer: Any = module._resource_sharer
    if not isinstance(sharer._cache, dict):
        raise TypeError("the resource sharer keeps its descriptors elsewhere")

    def descriptors() -> dict[str, Any]:
        address = sharer._address
        return {
            "outstanding": len(sharer._cache),
            "issued": sharer._key,
            "address": None if address is None else str(address)[:256],
        }

    session.gauges["sharer"] = descriptors
    return lambda: session.drop_gauges("sharer")
