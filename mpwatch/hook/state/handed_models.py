"""Models passed to new processes: see `checks.shared_parameters`."""

from __future__ import annotations

import sys

from .. import checks
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .thread_state import Worker


class HandedModels:
    """Searches for models in processes that are not workers of a DataLoader or pool."""

    __slots__ = ("_check", "_note", "_worker")

    def __init__(self, note: Callable[..., None], worker: Worker) -> None:
        self._note = note
        self._worker = worker
        self._check: Any = None

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

    def _loaded(self) -> Any:
        """The check; `None` without torch, or if it could not be loaded."""
        if self._check is None and "torch.nn" in sys.modules:
            try:
                self._check = checks.load("shared_parameters").SharedParameters(self._note)
            except Exception as error:
                if not foreign_exceptions.is_ours(error):
                    raise
        return self._check
