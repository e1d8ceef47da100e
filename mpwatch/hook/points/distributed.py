"""`torch.distributed`: process groups, and stores that could not be created.

From the first process group on, `checks.flight_recorder` is read.

A program may catch the error of a store and try another port, which is no fault. So a failure is
noted only if no call has succeeded for `GRACE_NS`; one that ends the process is noted at its exit.
"""

from __future__ import annotations

import sys

from .. import checks
from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions
from ..safe.exact import is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

MAKE = "_new_process_group_helper"
"""What `init_process_group` and `new_group` make every group with, torch 2.1 to 2.13."""
DUMP = "_dump_fr_trace_json"
"""The flight recorder of gloo, torch 2.8 to 2.13."""
DUMP_NCCL = "_dump_nccl_trace_json"
"""That of NCCL, in torch that is built for CUDA, 2.3 to 2.13."""
GRACE_NS = 5_000_000_000
CREATE = "_create_c10d_store"
"""The function by which both `tcp://` and `env://` create their store, torch 2.1 to 2.14."""


class _Groups:
    """Passes the process groups that this process is part of to `checks.flight_recorder`.

    From the first one on, the models that DistributedDataParallel wraps as well.
    """

    __slots__ = ("_check", "_session", "undo")

    def __init__(self, session: Context) -> None:
        self._session = session
        self._check: Any = None
        self.undo: Undo | None = None

    def add(self, name: Any, size: Any, rank: Any, ranks: Any, of: Any) -> None:
        """Note a group, on a thread of the program."""
        if type(size) is not int or type(rank) is not int or min(size, rank) < 0:
            return  # of other ranks
        if self._check is None:
            torch = sys.modules.get("torch._C._distributed_c10d")
            dump, nccl = getattr(torch, DUMP, None), getattr(torch, DUMP_NCCL, None)
            check = checks.load("flight_recorder")
            recorder = dump and check.FlightRecorder(self._session.system, dump, nccl)
            self._check = check.ProcessGroups(recorder, self._session.system)
            self.undo = self._check.follow_models(attribute, self._session)
        # An empty list stands for all ranks.
        self._check.add(str(name), size, rank, ranks or range(size), str(of))
        self._session.gauges["collectives"] = self._check.show


def follow_groups(module: ModuleType, session: Context) -> Undo:
    """Follow the process groups that are made, and those that exist."""
    groups = _Groups(session)

    def wrap(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                foreign_exceptions.unframe(error)
                raise
            try:
                size, rank, ranks, backend, _, *more = args
                name = more[0] if more else kwargs.get("group_name")
                groups.add(name, size, rank, ranks, backend)
            except BaseException as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                session.patcher.missing["collectives"] = f"{type(error).__name__}: {error}"[:200]
            return result

        return _new_process_group_helper

    undo = attribute(MAKE, wrap)(module, session)
    _add_existing(module, session, groups)

    def undo_both() -> None:
        session.drop_gauges("collectives")
        undo()
        if groups.undo is not None:
            groups.undo()

    return undo_both


def _add_existing(module: Any, session: Context, groups: _Groups) -> None:
    """Add the groups that were made before the hook was attached."""
    try:
        world = module._world
        for group, (backend, _) in tuple(world.pg_map.items()):
            ranks = world.pg_group_ranks[group]
            name = world.pg_names[group]
            groups.add(name, len(ranks), group.rank(), tuple(ranks), backend)
    except BaseException as error:
        if not foreign_exceptions.is_ours(error):
            raise
        session.patcher.missing["earlier process groups"] = f"{type(error).__name__}: {error}"[:200]


class StoreFailure:
    """The last failure without a later success, as the fields of a note."""

    __slots__ = ("at_ns", "fields")

    def __init__(self) -> None:
        self.at_ns = 0
        self.fields: dict[str, Any] | None = None


def _wrap_store(
    original: Callable[..., Any], session: Context, failure: StoreFailure
) -> Callable[..., Any]:
    def create_store(*args: Any, **kwargs: Any) -> Any:
        try:
            store = original(*args, **kwargs)
        except BaseException as error:
            if is_a(error, Exception):
                failure.at_ns = session.system.monotonic_ns()
                failure.fields = {
                    "where": "rendezvous",
                    "type": foreign_exceptions.type_of(error),
                    "text": foreign_exceptions.text_of(error),
                    "frames": foreign_exceptions.frames_here(1),
                    "tid": session.system.get_native_id(),
                }
            foreign_exceptions.unframe(error)
            raise
        failure.fields = None
        return store

    return create_store


def watch_stores(module: ModuleType, session: Context) -> Undo:
    """Wrap the function; a failure that lasts is noted when gauges are read."""
    failure = StoreFailure()
    undo = attribute(CREATE, lambda original, session: _wrap_store(original, session, failure))(
        module, session
    )

    def settle() -> None:
        fields = failure.fields
        if fields is not None and session.system.monotonic_ns() - failure.at_ns > GRACE_NS:
            failure.fields = None
            session.note("exception", **fields)

    session.gauges["rendezvous"] = settle

    def undo_both() -> None:
        session.drop_gauges("rendezvous")
        undo()

    return undo_both
