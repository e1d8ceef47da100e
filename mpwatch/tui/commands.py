"""The command palette: entries that depend on the job."""

from __future__ import annotations

from functools import partial
from typing import Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.tui.view_state import Watch


class Jumping(Protocol):
    """The application interface that a jump uses."""

    watch_state: Watch

    def open_finding(self, finding: Finding) -> None:
        """Show a finding in full."""

    def jump_to(self, process: ProcessId) -> None:
        """Show a process in the tree."""


class JumpProvider(Provider):
    """Finds processes and findings by any part of their names."""

    @property
    def _app(self) -> Jumping:
        return cast(Jumping, self.app)

    def _targets(self) -> list[tuple[str, str, Process | Finding]]:
        moment = self._app.watch_state.moment
        if moment is None:
            return []
        snapshot = moment.snapshot
        findings = [(f"finding: {f.rule}", f.summary, f) for f in snapshot.findings]
        processes = [
            (f"process: {p.pid} {p.label}", p.doing or moment.state(p), p)
            for p in snapshot.processes
        ]
        return [*findings, *processes]

    def _open(self, target: Process | Finding) -> None:
        if isinstance(target, Finding):
            self._app.open_finding(target)
        else:
            self._app.jump_to(target.process)

    async def discover(self) -> Hits:
        """Findings and the first processes, before anything is typed."""
        for title, about, target in self._targets()[:12]:
            yield DiscoveryHit(title, partial(self._open, target), help=about)

    async def search(self, query: str) -> Hits:
        """Processes and findings whose name matches."""
        matcher = self.matcher(query)
        for title, about, target in self._targets():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), partial(self._open, target), help=about)
