"""Progress of made-up processes at given rates."""

from __future__ import annotations

from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import ProgressSource
from mpwatch.observe.state.progress import ProgressTable
from tests.builders.samples import event, hook_slice

BEGIN_S = 1000.0
ONE, OTHER = ProcessId(1, 1), ProcessId(2, 1)


def source(*rates: float, begin_s: float = BEGIN_S, process: ProcessId = ONE) -> ProgressSource:
    """The batches of one process.

    Args:
        rates: Batches a second and for how many seconds, as often as the rate changes.
        begin_s: The time of the first batch.
        process: Which one it is.
    """
    events = []
    for per_s, seconds in zip(rates[::2], rates[1::2], strict=True):
        count = round(per_s * seconds)
        events += [event(wire.LOADER_NEXT, begin_s + n / per_s) for n in range(count)]
        begin_s += seconds
    table = ProgressTable()
    part = hook_slice(process, begin_s, *events)
    table.add_events(part, part.events)
    (found,) = table.sources()
    return found
