"""Connections to the hooks of all processes of a job: events in, requests out."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from typing import Any

from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NO_HOOK, NoHook
from mpwatch.collect.hook.link import SILENT_AFTER_S, Delivered, Link
from mpwatch.model.events import HookStatus, Input
from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.samples import ProcSample

AGAIN_S = 5.0
"""Interval of searches for a hook that was detached or could not be used."""


class HookClients:
    """Connections to hooks, driven by one thread; no call waits for a hook."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self.links: dict[ProcessId, Link] = {}
        self._not_before_s: dict[ProcessId, float] = {}
        """Processes without a usable hook, and the time of the next search."""
        self._thorough_s: dict[ProcessId, float] = {}
        """Time of the next search for a hook that is not where the environment says."""
        self._delivered: dict[ProcessId, Delivered] = {}
        self._said: dict[ProcessId, tuple[HookState, str]] = {}
        """The last status of each process: only a new one is reported."""
        self._statuses: list[Input] = []

    @property
    def has_any(self) -> bool:
        """Whether there is a connection."""
        return bool(self.links)

    def watch(self, samples: Sequence[ProcSample]) -> None:
        """Look for hooks in these processes, and forget those that are no longer among them."""
        at_s = self._clock()
        here = set()
        for sample in samples:
            process = sample.process
            here.add(process)
            if sample.state in ("Z", "X") or not sample.is_python or process in self.links:
                continue
            if at_s >= self._not_before_s.get(process, at_s):
                self._try(sample, at_s)
        tables: tuple[dict[ProcessId, Any], ...] = (
            self._not_before_s, self._thorough_s, self._delivered, self._said,
        )  # fmt: skip
        for table in tables:
            for process in table.keys() - here - self.links.keys():
                del table[process]

    def poll(self, timeout_s: float) -> list[Input]:
        """What hooks have sent; waits at most this long for the first input."""
        inputs, self._statuses = self._statuses, []
        if not self.links and not inputs:
            # Also without connections it waits: the caller uses this as its interval.
            self._selector.select(timeout_s)
            return []
        wait_s = 0.0 if inputs else min(timeout_s, SILENT_AFTER_S)
        for key, _ in self._selector.select(wait_s):
            link: Link = key.data
            at_s = self._clock()
            inputs.extend(link.read(at_s))
            if link.state == "gone":
                self._part(link, at_s)
        at_s = self._clock()
        for link in self.links.values():
            status = link.check(at_s)
            if status is not None:
                inputs.append(status)
        return [each for each in inputs if self._is_new(each)]

    def ask(self, process: ProcessId, what: str, also: Sequence[str] = ()) -> str | None:
        """Send one hook a request of `wire.ASKS`; `poll` returns the answer.

        Args:
            process: The process of the hook.
            what: One of `wire.ASKS`.
            also: With `gauges`: gauges that are read on request only.

        Returns:
            `None`, or one sentence why it cannot be asked.
        """
        link = self.links.get(process)
        if link is None:
            return f"There is no hook in process {process.pid}."
        return link.ask(what, self._clock(), also)

    def close(self) -> None:
        """Close all connections."""
        for link in self.links.values():
            link.close()
        self.links.clear()
        self._selector.close()

    def _try(self, sample: ProcSample, at_s: float) -> None:
        """Look for the hook of one process."""
        is_thorough = at_s >= self._thorough_s.get(sample.process, at_s)
        if is_thorough:
            self._thorough_s[sample.process] = at_s + AGAIN_S
        try:
            sock = discovery.connect(sample, self._proc, thorough=is_thorough)
        except NoHook as none:
            if str(none) != NO_HOOK:
                self._not_before_s[sample.process] = at_s + AGAIN_S
            self._statuses.append(HookStatus(sample.process, at_s, "absent", str(none)))
            return
        delivered = self._delivered.setdefault(sample.process, Delivered())
        link = Link(sample, sock, delivered, at_s)
        self.links[sample.process] = link
        self._selector.register(sock, selectors.EVENT_READ, link)

    def _part(self, link: Link, at_s: float) -> None:
        """Close a connection that ended; its hook is looked for again after a while."""
        self._selector.unregister(link.sock)
        link.close()
        del self.links[link.process]
        self._not_before_s[link.process] = at_s + AGAIN_S

    def _is_new(self, each: Input) -> bool:
        """Whether this status differs from the last one; `absent` after `gone` does not count."""
        if not isinstance(each, HookStatus):
            return True
        before = self._said.get(each.process)
        if before is not None and before[0] in ("gone", "absent") and each.reason == NO_HOOK:
            return False
        self._said[each.process] = (each.state, each.reason)
        return before != (each.state, each.reason)
