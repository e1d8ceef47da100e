"""Process groups of `torch.distributed`: from the first on, `checks.flight_recorder` is read."""

from __future__ import annotations

import sys

from .. import checks
from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions

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
_GROUPS = 16
_RANKS_TEXT = 200


class Groups:
    """The newest process groups of this process, as plain values, and the recorder to read.

    No group is kept: its last reference has to be dropped by the program.
    """

    __slots__ = ("_facts", "_reason", "_recorder")

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._recorder: Any = None
        self._reason = ""

    def add(self, session: Context, name: Any, size: Any, rank: Any, ranks: Any, of: Any) -> None:
        """Note a group that this process is part of, on a thread of the program."""
        if type(size) is not int or type(rank) is not int or min(size, rank) < 0:
            return  # of other ranks
        # An empty list stands for all ranks.
        known = ranks or range(size)
        self._facts[str(name)[:64]] = {
            "size": size,
            "rank": rank,
            "ranks": ", ".join(map(str, known))[:_RANKS_TEXT],
            "backend": str(of)[:64],
        }
        while len(self._facts) > _GROUPS:
            del self._facts[next(iter(self._facts))]
        if self._recorder is None and not self._reason:
            self._load(session)
        session.gauges["collectives"] = self.show

    def show(self) -> dict[str, Any]:
        """The gauge `collectives`; see `wire`."""
        if self._recorder is None:
            return {"groups": dict(self._facts), "error": self._reason}
        return {"groups": dict(self._facts), "states": self._recorder.show()}

    def _load(self, session: Context) -> None:
        dump = getattr(sys.modules.get("torch._C._distributed_c10d"), DUMP, None)
        if dump is None:
            self._reason = f"this torch has no {DUMP}: its flight recorder cannot be read"
            return
        self._recorder = checks.load("flight_recorder").FlightRecorder(session.system, dump)


def install(module: ModuleType, session: Context) -> Undo:
    """Follow the process groups that are made, and those that exist."""
    groups = Groups()

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
                groups.add(session, name, size, rank, ranks, backend)
            except Exception as error:
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

    return undo_both


def _add_existing(module: Any, session: Context, groups: Groups) -> None:
    """Add the groups that were made before the hook was attached."""
    try:
        world = module._world
        for group, (backend, _) in tuple(world.pg_map.items()):
            ranks = world.pg_group_ranks[group]
            name = world.pg_names[group]
            groups.add(session, name, len(ranks), group.rank(), tuple(ranks), backend)
    except Exception as error:
        if not foreign_exceptions.is_ours(error):
            raise
        session.patcher.missing["earlier process groups"] = f"{type(error).__name__}: {error}"[:200]
