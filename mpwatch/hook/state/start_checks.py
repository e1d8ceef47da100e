"""Checks of what a new process is given: models it trains, arrays left over old memory."""

from __future__ import annotations

import sys

from .. import checks
from ..safe import foreign_exceptions

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .thread_state import Worker

NOTED = 16
"""Arrays over old memory that one process reports."""


class StartChecks:
    """Examines processes that are started, and what they were given.

    Models are examined that are passed to processes other than workers of a DataLoader or pool: see
    `checks.shared_parameters`. Numpy arrays over memory that a tensor no longer uses are searched
    for once a storage with a numpy view was moved to shared memory: see `checks.dangling_views`.
    """

    __slots__ = ("_check", "_is_suspected", "_note", "_noted", "_worker")

    def __init__(self, note: Callable[..., None], worker: Worker) -> None:
        self._note = note
        self._worker = worker
        self._check: Any = None
        self._is_suspected = False
        self._noted: set[str] = set()

    def start(self, process: Any, birth: dict[str, Any]) -> None:
        """Examine a process that is about to be started; never raises."""
        is_of_interest = birth["method"] == "fork" and birth["worker_id"] is None
        if is_of_interest and (check := self._loaded()) is not None:
            check.start(process, birth["target"])

    def arrive(self, process: Any) -> None:
        """Examine, in a new process, the arguments that it received; never raises."""
        is_of_interest = not self._worker.is_worker and not self._worker.source
        if is_of_interest and (check := self._loaded()) is not None:
            check.arrive(process)

    def leave(self) -> None:
        """Observe optimizers no longer."""
        if self._check is not None:
            self._check.leave()

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
        except BaseException as error:
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
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def _loaded(self) -> Any:
        """The check; `None` without torch, or if it could not be loaded."""
        if self._check is None and "torch.nn" in sys.modules:
            try:
                self._check = checks.load("shared_parameters").SharedParameters(self._note)
            except BaseException as error:
                if not foreign_exceptions.is_ours(error):
                    raise
        return self._check
