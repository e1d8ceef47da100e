"""All collectors of one job together: readings as inputs, no thread and no state of the job."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from mpwatch.collect.deaths import DeathWatch
from mpwatch.collect.hooks import HookClients
from mpwatch.collect.stacks import StackCollector
from mpwatch.collect.tree import TreeCollector
from mpwatch.collect.wanted import Wanted
from mpwatch.model.ids import ProcessId
from mpwatch.model.inputs import Input
from mpwatch.model.samples import StacksTaken, TreeSample

HookUse: TypeAlias = Literal["use", "bring", "ignore"]
"""`use` a hook that is there, `bring` one in where there is none, `ignore` it."""


class Intake:
    """Reads the job and listens to its hooks; the caller's thread does all the work."""

    def __init__(self, root: ProcessId, *, hooks: bool = True) -> None:
        _take_all_descriptors()
        self.root = root
        self.tree = TreeCollector(root)
        self.deaths = DeathWatch()
        self.hooks = HookClients() if hooks else None
        self.stacks = StackCollector()

    def read(self, wanted: Wanted) -> TreeSample | None:
        """Read the tree once; `None` once the root and all it started are gone."""
        tree = self.tree.collect(wanted)
        if tree is None:
            return None
        self.deaths.watch(sample.process for sample in tree.processes)
        if self.hooks is not None:
            self.hooks.watch(tree.processes)
        return tree

    def listen(self, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> list[Input]:
        """Wait for what hooks say and processes that end, at most this long."""
        inputs: list[Input] = []
        if self.hooks is not None:
            inputs.extend(self.hooks.poll(timeout_s))
        else:
            sleep(timeout_s)
        # Children that live shorter than the time between two readings are caught here.
        self.deaths.watch(self.tree.births())
        inputs.extend(self.deaths.poll())
        return inputs

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
