"""Whether numpy may look at memory that a tensor has left: see `checks.dangling_views`."""

from __future__ import annotations

from .. import checks
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOTED = 16


class MovedViews:
    """Has arrays looked for once a tensor that had a view was moved."""

    __slots__ = ("_is_suspected", "_note", "_noted")

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._is_suspected = False
        self._noted: set[str] = set()

    def suspect(self, storage: Any) -> None:
        """Examine a storage that is about to be shared; never raises.

        torch fixes the size of one that numpy looks at (`tensor_numpy.cpp`), or that came from it.
        It tells from some version between 2.2 and 2.5 on; before, any may be looked at.
        """
        try:
            if not self._is_suspected and not storage.is_shared():
                is_resizable = getattr(storage, "resizable", None)
                self._is_suspected = is_resizable is None or not is_resizable()
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def look(self, attributes: dict[str, Any]) -> None:
        """Note arrays left behind, within reach of a process just started; never raises.

        Args:
            attributes: Those that the process had before it was started.
        """
        if not self._is_suspected or len(self._noted) >= NOTED:
            return
        try:
            checks.load("dangling_views").note_views(self._note, self._noted, attributes)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
