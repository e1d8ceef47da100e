"""A relay: one node has the pipes to the agents of others, so that the head need not have all.

One client of ssh or srun on the machine of the head takes some megabytes; with relays there is one
for each batch of nodes. A relay starts the launchers of its batch as a head would, and carries
their bytes without reading them (`mpwatch.nodes.wire.channels`). Which nodes these are, it is told
by its own command line: a head can ask for one of them by number, and for nothing else. It ends
with its input, and so do the agents behind it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import IO

from mpwatch import __version__
from mpwatch.nodes.launchers.launch import GRACE_S, ChildPipes, Launch, not_started
from mpwatch.nodes.wire.channels import Event, Happened, Kind, Multiplexer
from mpwatch.nodes.wire.messages import SILENCE_S

HELLO_S = 2.0
"""Interval at which it says that it is there, while it has nothing else to send."""
EXIT_S = 1.0
"""How long a launcher may take to exit once its output has ended."""
_POLL_S = 0.05
_NOT_STARTED = 127
"""Exit code of a launcher that cannot be started, as of a shell."""


class Relay:
    """The launchers of a batch."""

    def __init__(self, input: int, output: int, launches: Sequence[Launch]) -> None:
        """Make it, with nothing started.

        Args:
            input: Descriptor from which the head is read.
            output: Descriptor to which the head is written.
            launches: The nodes, which the head names by their place here.
        """
        self._way = Multiplexer(input, output, waits=False)
        self._launches = launches
        self._children: dict[int, ChildPipes] = {}
        self._ends_s: dict[int, float] = {}

    def run(self) -> None:
        """Serve the head until the input ends."""
        self._hello()
        try:
            while time.monotonic() - self._way.heard_s < SILENCE_S and self._step():
                pass
        finally:
            self._end()

    def _hello(self) -> None:
        self._way.send(Kind.HELLO, data=__version__.encode())
        self._hello_s = time.monotonic()

    def _step(self) -> bool:
        """Carry what is there; whether the input is still open."""
        timeout_s = _POLL_S if self._ends_s else HELLO_S
        for each in self._way.step(timeout_s):
            if isinstance(each, Event):
                self._serve(each)
            elif each.what == "closed":
                return False
            else:
                self._note(each)
        self._reap()
        if self._way.is_idle and time.monotonic() - self._hello_s >= HELLO_S:
            self._hello()
        return True

    def _serve(self, event: Event) -> None:
        if event.kind is Kind.OPEN and event.channel not in self._children:
            self._open(event.channel, event.data)
        elif event.kind is Kind.END and event.channel in self._children:
            self._way.close_sink(event.channel, Kind.DATA)
            self._ends_s.setdefault(event.channel, time.monotonic() + GRACE_S)

    def _open(self, channel: int, place: bytes) -> None:
        """Start the launcher of the node at a place."""
        number = int(place) if place.isdigit() and len(place) < 6 else len(self._launches)
        if number >= len(self._launches):
            return
        launch = self._launches[number]
        try:
            child = ChildPipes(launch.command, launch.environment)
        except OSError as error:
            words = not_started(launch.command, error)
            self._way.send(Kind.ERROR, channel, words.encode("utf-8", "replace"))
            self._way.send(Kind.END, channel, b"%d" % _NOT_STARTED)
            return
        self._children[channel] = child
        output, errors = _own(child.stdout), _own(child.stderr)
        sources = {output: Kind.DATA, errors: Kind.ERROR}
        self._way.add(channel, sources, {Kind.DATA: _own(child.stdin)})

    def _note(self, seen: Happened) -> None:
        """An output has ended, or what is for an agent is not read."""
        if seen.what == "stuck":
            self._way.close_sink(seen.number, Kind.DATA)
        self._ends_s.setdefault(seen.number, time.monotonic() + EXIT_S)

    def _reap(self) -> None:
        """Tell of the launchers that have exited, and kill those that should have."""
        for channel, end_s in list(self._ends_s.items()):
            child = self._children[channel]
            if not child.has_ended():
                if time.monotonic() < end_s:
                    continue
                child.kill()
            code = child.wait()
            self._way.remove(channel)
            self._way.send(Kind.END, channel, b"%d" % code)
            del self._ends_s[channel], self._children[channel]

    def _end(self) -> None:
        """Close the inputs of all agents, and leave none behind."""
        self._way.close()
        end_s = time.monotonic() + GRACE_S
        while time.monotonic() < end_s and not all(c.has_ended() for c in self._children.values()):
            time.sleep(_POLL_S)
        for child in self._children.values():
            if not child.has_ended():
                child.kill()
            child.wait()


def _own(stream: IO[bytes] | None) -> int:
    """A descriptor of a pipe that is not closed with the stream."""
    assert stream is not None
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor
