"""Inputs made on other threads, waiting for the observing thread to fold them."""

from __future__ import annotations

import queue
import resource
import signal
from dataclasses import replace
from typing import Literal, TypeAlias

from mpwatch.collect.hook.client import HookClients
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.exits import ExitWatch
from mpwatch.collect.process.py_spy import StackCollector
from mpwatch.model.events import Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, StacksTaken, TreeSample
from mpwatch.observe.state.post_mortem import LastWords


class Inbox:
    """An unbounded queue that is emptied at one go; producers are few and slow."""

    def __init__(self) -> None:
        self._inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()

    def put(self, input: Input) -> None:
        """Leave an input; never blocks."""
        self._inputs.put(input)

    def drain(self) -> list[Input]:
        """Take everything that is there."""
        taken: list[Input] = []
        # Asked ten times a second, and hardly ever is there anything.
        while not self._inputs.empty():
            try:
                taken.append(self._inputs.get_nowait())
            except queue.Empty:
                break
        return taken


HookUse: TypeAlias = Literal["use", "inject", "ignore"]
"""`use` a hook that is there, `inject` one where there is none, `ignore` it."""


class Intake:
    """Reads the job and listens to its hooks; the caller's thread does all the work."""

    def __init__(self, root: ProcessId, *, hooks: bool = True) -> None:
        _take_all_descriptors()
        self.root = root
        self.tree = TreeCollector(root)
        self.deaths = ExitWatch()
        self.hooks = HookClients() if hooks else None
        self.stacks = StackCollector()
        self.has_changed = False
        """Whether a process was born or has ended since the last reading."""
        self._last_words = LastWords()

    def read(self, wanted: ReadRequest) -> TreeSample | None:
        """Read the tree once; `None` once the root and all it started are gone."""
        self.has_changed = False
        tree = self.tree.collect(wanted)
        if tree is None:
            return None
        present = [sample.process for sample in tree.processes]
        self.deaths.watch(present)
        self.deaths.forget_collected(present)
        if self.hooks is not None:
            self.hooks.watch(tree.processes)
        return tree

    @property
    def has_hooks(self) -> bool:
        """Whether a hook is connected."""
        return self.hooks is not None and self.hooks.has_any

    def listen(self, timeout_s: float) -> list[Input]:
        """Wait for what hooks say and processes that end, at most this long."""
        inputs = self._hear(timeout_s)
        # Where no hook is listened to, it is an end that is waited for.
        found = self.deaths.poll(timeout_s) if self.hooks is None else []
        # Children that live shorter than the time between two readings are caught here.
        born = self.tree.started()
        if born:
            self.deaths.watch(born)
        ended = [self._counted(end) for end in (*found, *self.deaths.poll())]
        self.has_changed = self.has_changed or bool(born or ended)
        if ended:
            # What a hook sent last may still lie in its socket, and comes before what it left.
            # One read each: the hello, what follows it, and the end, at which its ring is read.
            for _ in range(3):
                inputs.extend(self._hear(0.0))
        for end in ended:
            if self.hooks is not None:
                inputs.extend(self._last_words.of(end))
            inputs.append(end)
        return inputs

    def _counted(self, ended: Ended) -> Ended:
        """A SIGKILL with what the control group has counted: there may be no further reading."""
        if ended.signal != signal.SIGKILL:
            return ended
        return replace(ended, oom_kills=self.tree.oom_kills())

    def _hear(self, timeout_s: float) -> list[Input]:
        """What hooks have said; nothing where they are ignored."""
        if self.hooks is None:
            return []
        heard = self.hooks.poll(timeout_s)
        for each in heard:
            self._last_words.take(each)
        return heard

    def take(
        self, process: ProcessId, *, native: bool = False, locals: bool = False
    ) -> StacksTaken:
        """Take the stacks of one process from outside."""
        return self.stacks.take(process, native=native, locals=locals)

    def close(self) -> None:
        """Close every connection and descriptor."""
        if self.hooks is not None:
            self.hooks.close()
        self.deaths.close()


def _take_all_descriptors() -> None:
    """Raise our own soft limit to the hard one: each process that is watched costs two.

    Programs that mpwatch starts are started before it watches them, so they do not inherit this.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
