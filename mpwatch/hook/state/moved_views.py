"""Numpy arrays over memory that a tensor no longer uses: see `checks.dangling_views`."""

from __future__ import annotations

from .. import checks
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOTED = 16


class MovedViews:
    """Searches for such arrays once a storage with a numpy view was moved to shared memory."""

    __slots__ = ("_is_suspected", "_note", "_noted")

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._is_suspected = False
        self._noted: set[str] = set()

    def suspect(self, storage: Any) -> None:
        """Examine a storage that is about to be shared; never raises.

        Torch makes a storage non-resizable once numpy has a view of it (`tensor_numpy.cpp`), or
        once it was made from an array. Versions since one between 2.2 and 2.5 tell; before, any
        storage may have a view.
        """
        try:
            if not self._is_suspected and not storage.is_shared():
                is_resizable = getattr(storage, "resizable", None)
                self._is_suspected = is_resizable is None or not is_resizable()
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def find_left_behind(self, attributes: dict[str, Any]) -> None:
        """Note arrays over old memory that a process just started can reach; never raises.

        Args:
            attributes: Attributes of the process before it was started.
        """
        if not self._is_suspected or len(self._noted) >= NOTED:
            return
        try:
            checks.load("dangling_views").note_views(self._note, self._noted, attributes)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
