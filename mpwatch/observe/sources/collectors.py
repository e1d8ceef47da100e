"""The collectors of one job: process tree, exits, hooks, and files of hooks of dead processes."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.collect.hook.client import HookClients
from mpwatch.collect.hook.left_files import (
    HookFiles,
    has_ring,
    last_hook_files,
    own_folders,
    read_files_of,
)
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.exits import ExitWatch
from mpwatch.collect.process.fds import raise_own_limit
from mpwatch.collect.process.py_spy import StackCollector, values_in
from mpwatch.model.events import HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, StacksTaken, TreeSample, ValuesRead, WantedFrame
from mpwatch.observe.state.event_log import ReceivedNotes

HookUse: TypeAlias = Literal["use", "inject", "ignore"]
"""`use` an attached hook, `inject` one if there is none, or `ignore` it."""
EARLIER_LIMIT = 16
"""Processes that exited before this observer started whose files are read, the last ones; each
takes some 20 ms."""
READS_AFTER_EXIT = 3
"""Of a socket: the hello, what follows it, and its end, at which the ring is read."""


class InputQueue:
    """Inputs made on other threads, until the observing thread folds them; not bounded.

    Its producers are few and slow: py-spy and injections.
    """

    def __init__(self) -> None:
        self._inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()

    def put(self, input: Input) -> None:
        """Append an input; never blocks."""
        self._inputs.put(input)

    def drain(self) -> list[Input]:
        """Remove and return all inputs."""
        inputs: list[Input] = []
        # Called ten times a second, and the queue is nearly always empty.
        while not self._inputs.empty():
            try:
                inputs.append(self._inputs.get_nowait())
            except queue.Empty:
                break
        return inputs


class Collectors:
    """Reads a job and polls its hooks, on the thread of the caller."""

    def __init__(self, root: ProcessId, *, hooks: bool = True) -> None:
        raise_own_limit()
        self.root = root
        self.tree = TreeCollector(root)
        self.exits = ExitWatch()
        self.hooks = HookClients() if hooks else None
        self.stacks = StackCollector()
        self.has_changed = False
        """Whether a process has started or exited since the last reading."""
        self._post_mortem = PostMortem()
        self._present: tuple[ProcessId, ...] = ()
        self._has_looked_back = False

    @property
    def are_hooks_behind(self) -> bool:
        """Whether records or notes that a hook had made at its hello have not arrived."""
        return self.hooks is not None and self.hooks.is_behind

    def read(self, request: ReadRequest) -> TreeSample | None:
        """Read the tree once; `None` once the root and all its descendants are gone."""
        self.has_changed = False
        tree = self.tree.collect(request)
        if tree is None:
            return None
        before = self._present
        present = self._present = tuple(sample.process for sample in tree.processes)
        self.exits.watch(present)
        self.exits.forget_collected(present)
        if self.hooks is not None:
            self.hooks.watch(tree.processes)
            self._post_mortem.keep({*before, *present})
        return tree

    @property
    def has_hooks(self) -> bool:
        """Whether a hook is connected."""
        return self.hooks is not None and self.hooks.has_any

    def poll(self, timeout_s: float) -> list[Input]:
        """Inputs from hooks and exits of processes; waits at most this long."""
        inputs = self._poll_hooks(timeout_s)
        if self.has_hooks and not self._has_looked_back:
            self._has_looked_back = True
            inputs.extend(self._post_mortem.left_earlier(self._present))
        # Where hooks are ignored, it waits for exits instead.
        found = self.exits.poll(timeout_s) if self.hooks is None else []
        # Children that live for less than the time between two readings are found here.
        started = self.tree.started()
        if started:
            self.exits.watch(started)
        exits = [self._with_oom_kills(each) for each in (*found, *self.exits.poll())]
        self.has_changed = self.has_changed or bool(started or exits)
        if exits:
            # What a hook sent last may still be in its socket, and precedes what is in its files.
            for _ in range(READS_AFTER_EXIT):
                inputs.extend(self._poll_hooks(0.0))
        for each in exits:
            if self.hooks is not None:
                inputs.extend(self._post_mortem.of(each))
            inputs.append(each)
        return inputs

    def ask_hook(self, process: ProcessId, what: str, frames: Sequence[WantedFrame] = ()) -> None:
        """Ask the hook of a process, unless hooks are ignored; see `HookClients.ask`."""
        if self.hooks is not None:
            self.hooks.ask(process, what, frames=frames)

    def take(
        self, process: ProcessId, *, native: bool = False, locals: bool = False
    ) -> StacksTaken:
        """Take the stacks of one process from outside; may be called by several threads."""
        return self.stacks.take(process, native=native, locals=locals)

    def take_values(self, process: ProcessId, frames: Sequence[WantedFrame]) -> ValuesRead:
        """Read values from outside, while the process runs; as `take`."""
        return values_in(self.stacks.take(process, locals=True, may_stop=False), frames)

    def close(self) -> None:
        """Close every connection and descriptor."""
        if self.hooks is not None:
            self.hooks.close()
        self.exits.close()

    def _with_oom_kills(self, ended: Ended) -> Ended:
        """A SIGKILL with the count of the control group: there may be no further reading."""
        if ended.signal != signal.SIGKILL:
            return ended
        return replace(ended, oom_kills=self.tree.oom_kills())

    def _poll_hooks(self, timeout_s: float) -> list[Input]:
        if self.hooks is None:
            return []
        received = self.hooks.poll(timeout_s)
        for each in received:
            self._post_mortem.received(each)
        return received


READ_AFTER_EXIT = "the process exited; the rest was read from the files of its hook"


class _Received(Struct):
    """How much of what a hook recorded has been received."""

    since_ns: int | None = None
    sequence: int = -1
    records: int = 0
    notes: ReceivedNotes = field(default_factory=ReceivedNotes)
    folder: str | None = None
    pid_inside: int | None = None


class PostMortem:
    """Completes the events of exited processes from the files of their hooks.

    A hook sends ten times a second, so the last events before a SIGKILL are rarely received; and a
    process that runs for a shorter time may never have been connected to.
    """

    def __init__(self, folders: Callable[[], tuple[str, ...]] | None = None) -> None:
        """Prepare.

        Args:
            folders: Directories for files of processes whose hello was never received.
        """
        self._folders = folders or own_folders
        self._received: dict[ProcessId, _Received] = {}

    def received(self, input: Input) -> None:
        """Note what was received from a hook."""
        match input:
            case HookHello():
                received = self._received.setdefault(input.process, _Received())
                ring = input.data.get("ring")
                received.folder = os.path.dirname(ring) if isinstance(ring, str) else None
                received.pid_inside = input.pid_inside
                if input.since_ns != received.since_ns:  # another hook than before
                    received.since_ns, received.sequence, received.records = input.since_ns, -1, 0
                    received.notes.restart()
            case HookSlice(events=events) if events:
                received = self._received.setdefault(input.process, _Received())
                received.sequence = events[-1].sequence
                received.records += len(events)
            case HookNote():
                received = self._received.setdefault(input.process, _Received())
                received.notes.add(input)

    def keep(self, present: Collection[ProcessId]) -> None:
        """Drop what was received from other processes: some of it arrives after `of` was called.

        Args:
            present: The processes of this reading and of the one before, since when the exit of any
                other one was reported.
        """
        for process in self._received.keys() - present:
            del self._received[process]

    def of(self, ended: Ended) -> Iterator[Input]:
        """The inputs of an exited process that were not received; none if it left no files."""
        received = self._received.pop(ended.process, _Received())
        inside = ended.process
        if received.pid_inside is not None:  # files are named by the pid in its own namespace
            inside = ProcessId(received.pid_inside, inside.start_ticks)
        folders = self._folders() if received.folder is None else (received.folder,)
        folder = next((folder for folder in folders if has_ring(folder, inside)), None)
        if folder is None:
            return
        files = read_files_of(folder, inside)
        if not files.is_alive:
            yield from _missing(files, received, ended)

    def left_earlier(self, present: Collection[ProcessId]) -> Iterator[Input]:
        """What children left in files that exited before they were observed.

        Args:
            present: The processes of the job; only files of their children are read.
        """
        folders = {each.folder for each in self._received.values() if each.folder is not None}
        for files in last_hook_files(folders, set(present), EARLIER_LIMIT):
            if not files.is_alive and files.parent in present:
                at_s = files.last_ns / 1e9
                yield from _missing(files, _Received(), Ended(files.process, at_s))


def _missing(files: HookFiles, received: _Received, ended: Ended) -> Iterator[Input]:
    """The events in the files that were not received, as the hook would have sent them."""
    process = ended.process
    events = tuple(event for event in files.events if event.sequence > received.sequence)
    notes = [note for note in files.notes if not received.notes.has(replace(note, process=process))]
    if events:
        lost = events[-1].sequence + 1 - received.records - len(events)
        yield HookSlice(process, ended.at_s, events, max(0, lost))
    yield from (replace(note, process=process) for note in notes)
    if events or notes:
        yield HookStatus(process, ended.at_s, "gone", READ_AFTER_EXIT)
