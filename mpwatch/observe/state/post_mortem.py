"""What the hook of a process recorded and could not say any more before the process died."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from mpwatch.collect.hook.files import BlackBox, folders_of_user, has_box, read_box
from mpwatch.model.events import HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.observe.state.event_log import ReceivedNotes

READ_AFTER_DEATH = "it died; the rest was read from what its hook left"


@dataclass(slots=True)
class _Heard:
    """How far a hook had told its story."""

    since_ns: int | None = None
    sequence: int = -1
    records: int = 0
    notes: ReceivedNotes = field(default_factory=ReceivedNotes)
    folder: str | None = None
    pid_inside: int | None = None


class LastWords:
    """Completes what hooks of processes said from the files they leave where they end badly.

    A hook sends ten times a second, so what led to a SIGKILL is rarely among what it sent; and a
    process that lives shorter than that may never have been listened to at all.
    """

    def __init__(self, folders: Callable[[], tuple[str, ...]] | None = None) -> None:
        """Prepare.

        Args:
            folders: Where to look for files of processes that never introduced themselves.
        """
        self._folders = folders or _own_folders
        self._heard: dict[ProcessId, _Heard] = {}

    def take(self, each: Input) -> None:
        """Note how far a hook has come."""
        match each:
            case HookHello():
                heard = self._heard.setdefault(each.process, _Heard())
                ring = each.data.get("ring")
                heard.folder = os.path.dirname(ring) if isinstance(ring, str) else None
                heard.pid_inside = each.pid_inside
                if each.since_ns != heard.since_ns:  # another hook than before
                    heard.since_ns, heard.sequence, heard.records = each.since_ns, -1, 0
                    heard.notes.restart()
            case HookSlice(events=events) if events:
                heard = self._heard.setdefault(each.process, _Heard())
                heard.sequence = events[-1].sequence
                heard.records += len(events)
            case HookNote():
                heard = self._heard.setdefault(each.process, _Heard())
                heard.notes.add(each)

    def of(self, ended: Ended) -> Iterator[Input]:
        """The inputs that are missing of a process that has ended; none if it left nothing."""
        heard = self._heard.pop(ended.process, _Heard())
        inside = ended.process
        if heard.pid_inside is not None:  # files are named by the pid in its own namespace
            inside = ProcessId(heard.pid_inside, inside.start_ticks)
        folders = self._folders() if heard.folder is None else (heard.folder,)
        folder = next((folder for folder in folders if has_box(folder, inside)), None)
        if folder is None:
            return
        box = read_box(folder, inside)
        if not box.is_alive:
            yield from _missing(box, heard, ended)


def _missing(box: BlackBox, heard: _Heard, ended: Ended) -> Iterator[Input]:
    """What a black box holds beyond what was heard, in the words of a living hook."""
    process = ended.process
    events = tuple(event for event in box.events if event.sequence > heard.sequence)
    notes = [note for note in box.notes if not heard.notes.has(replace(note, process=process))]
    if events:
        lost = events[-1].sequence + 1 - heard.records - len(events)
        yield HookSlice(process, ended.at_s, events, max(0, lost))
    yield from (replace(note, process=process) for note in notes)
    if events or notes:
        yield HookStatus(process, ended.at_s, "gone", READ_AFTER_DEATH)


def _own_folders() -> tuple[str, ...]:
    """Where hooks of this user put their files."""
    return folders_of_user(os.geteuid(), os.environ.get("XDG_RUNTIME_DIR"))
