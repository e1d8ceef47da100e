"""What the log tells of hooks: each state once, and of silences those that last."""

from __future__ import annotations

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.observe.journal import Journal

SILENCE_TOLD_S = 1.0
"""On a busy machine many an answer takes longer than the quarter of a second after which a hook is
shown as silent. A log of those would push out of it what happened."""


class HookLog:
    """Writes the states of hooks into the log of a job."""

    def __init__(self) -> None:
        self._told: dict[ProcessId, str] = {}
        """The state of each hook that the log told last."""
        self._silences: dict[ProcessId, HookStatus] = {}
        """Those that have begun and are not told yet."""

    def take(self, status: HookStatus, journal: Journal) -> None:
        """Take in a state; a silence is told later, if it still lasts then."""
        begun = self._silences.pop(status.process, None)
        if status.state == "silent":
            self._silences[status.process] = begun or status
        else:
            self._tell(status, journal)

    def tell_silences(self, at_s: float, journal: Journal) -> None:
        """Tell of silences that have lasted by this moment."""
        for process, status in list(self._silences.items()):
            if at_s - status.at_s >= SILENCE_TOLD_S:
                del self._silences[process]
                self._tell(status, journal)

    def forget(self, process: ProcessId) -> None:
        """Drop a process that nobody shows any more."""
        self._told.pop(process, None)
        self._silences.pop(process, None)

    def _tell(self, status: HookStatus, journal: Journal) -> None:
        if self._told.get(status.process, "absent") == status.state:
            return
        self._told[status.process] = status.state
        reason = f": {status.reason}" if status.reason else ""
        words = f"hook of {status.process.pid} is {status.state}{reason}"
        journal.add(status.at_s, "hook", status.process, words)
