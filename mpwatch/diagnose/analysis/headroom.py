"""How near something that can run out is to its limit, now and by its trend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpwatch.diagnose.analysis.forecast import (
    CRITICAL_WITHIN_S,
    WARNING_WITHIN_S,
    Forecast,
    forecast,
)
from mpwatch.model.findings import Severity
from mpwatch.model.history import Series
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import rate_text, seconds_text

AT_LIMIT = 0.97
"""From this share on the next step of a program may fail."""
NEAR_LIMIT = 0.9
SUSTAINED_S = 4.0
"""A rise shorter than this may be a start: workers, pipes and first batches all come at once."""


MOST_AHEAD = 10.0
"""A line is not drawn further into the future than so many times the past it is known from."""


@dataclass(frozen=True, slots=True)
class Approach:
    """Something that has run out, soon will, or has little left."""

    used: float
    limit: float
    severity: Severity
    ahead: Forecast | None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the limit, where that can be foreseen."""
        return None if self.ahead is None else self.ahead.eta_s

    @property
    def eta_words(self) -> str | None:
        """The time left in words."""
        return None if self.ahead is None else seconds_text(self.ahead.eta_s)

    def trend_words(self, what: str, unit: str = "") -> tuple[str, ...]:
        """The trend as evidence, with how sure it is; empty without one.

        For example `mappings +120/s over the last 30 s, confidence 97%`.
        """
        if self.ahead is None:
            return ()
        rate, over = rate_text(self.ahead.per_s, unit), seconds_text(self.ahead.span_s)
        return (f"{what} {rate} over the last {over}, confidence {self.ahead.confidence:.0%}",)


def approach(
    used: float,
    limit: float,
    series: Series,
    *,
    near: float = NEAR_LIMIT,
    at: float = AT_LIMIT,
    worth_forecasting: float = 0.0,
    series_limit: float | None = None,
) -> Approach | None:
    """Judge how near a limit is.

    Args:
        used: What is in use.
        limit: What can be used; positive.
        series: The values whose trend counts, oldest first.
        near: Share of the limit from which standing still is worth a warning.
        at: Share from which it counts as reached.
        worth_forecasting: Share below which a rise is taken for a start.
        series_limit: The limit of the series, where it is a part of what is used.

    Returns:
        The approach; `None` if the limit is far away in amount and in time.
    """
    share = used / limit
    ahead = None
    if share >= worth_forecasting and len(series) > 1:
        if series[-1].at_s - series[0].at_s >= SUSTAINED_S:
            ahead = forecast(series, limit if series_limit is None else series_limit)
        if ahead is not None and (ahead.severity is None or _is_bold(ahead)):
            ahead = None
    if share >= at:
        return Approach(used, limit, Severity.CRITICAL, ahead)
    if ahead is not None and ahead.severity is not None:
        return Approach(used, limit, ahead.severity, ahead)
    return Approach(used, limit, Severity.WARNING, None) if share >= near else None


def _is_bold(ahead: Forecast) -> bool:
    """Whether too little has been seen of a rise to say how it goes on for so long."""
    return ahead.eta_s > MOST_AHEAD * ahead.span_s


class MemoryRoom(NamedTuple):
    """The nearest limit of memory."""

    free_bytes: int
    total_bytes: int
    what: str
    """`the control group's memory` or `the machine's memory`."""


def memory_room(snapshot: Snapshot) -> MemoryRoom | None:
    """The control group's limit if there is one, else the machine's memory; `None` if unknown."""
    host = snapshot.host
    cgroup = host.cgroup
    if cgroup is not None and cgroup.memory_limit_bytes and cgroup.memory_bytes is not None:
        limit = cgroup.memory_limit_bytes
        if host.memory_total_bytes is None or limit < host.memory_total_bytes:
            free = max(0, limit - cgroup.memory_bytes)
            return MemoryRoom(free, limit, "the control group's memory")
    if host.memory_available_bytes is None or host.memory_total_bytes is None:
        return None
    return MemoryRoom(host.memory_available_bytes, host.memory_total_bytes, "the machine's memory")


def severity_of_growth(room: MemoryRoom | None, per_s: float) -> tuple[Severity, float | None]:
    """How bad a growth is and when it uses up the room; a far end is not foretold."""
    if room is None or per_s <= 0:
        return Severity.INFO, None
    eta_s = room.free_bytes / per_s
    if eta_s <= CRITICAL_WITHIN_S:
        return Severity.CRITICAL, eta_s
    if eta_s <= WARNING_WITHIN_S:
        return Severity.WARNING, eta_s
    return Severity.INFO, eta_s if eta_s <= 24 * 3600 else None
