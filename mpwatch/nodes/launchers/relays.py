"""Many nodes in batches: the head has a pipe to one node of each, which has those to the others.

A client of ssh takes 1.6 MB and one of srun 3.9 MB, as long as its node is observed. Beyond
`DIRECT_NODES` nodes, one of each batch therefore runs a relay (`mpwatch.nodes.agent.relay`) that
starts the launchers of the batch. Where a relay cannot be started, or a node cannot be reached from
there, that node is reached directly.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial

from mpwatch.nodes.launchers.launch import (
    CarriedPipes,
    ChangingNodes,
    ChildPipes,
    Launch,
    Pipes,
)
from mpwatch.nodes.wire.channels import Event, Happened, Kind, Multiplexer

DIRECT_NODES = 64
"""So many nodes are reached without relays."""
BATCH_NODES = 32
RELAYS_TRIED = 2
"""Relays of one batch that may fail before all of its nodes are reached directly."""
RELAY_START_S = 15.0
"""How long a relay may take until it says that it is there."""
RELAY_SILENT_S = 45.0
"""A relay that has sent nothing for so long has a machine that hangs: another node takes over. A
network that is cut for half a minute ends none."""
FAILURES_ENOUGH = 4
"""So many nodes that could not be reached from others, and none that could, show that the nodes may
not connect to each other at all."""
CLOSE_S = 1.0
"""How long a relay may take to end with the head."""
_OF_RELAY = 5
"""Descriptors of the pipes to a relay, and of the one that wakes its thread. Of a node behind it
both ends of each pipe are in this process."""
_TOLD_BYTES = 4096


def in_batches(launches: Sequence[Launch]) -> Sequence[Launch] | ChangingNodes:
    """The nodes of a job, by relays if they are many."""
    count = sum(launch.relay is not None for launch in launches)
    return RelayedNodes(launches) if count > DIRECT_NODES else launches


class RelayedNodes:
    """The nodes of a job, of which most are reached through others.

    See `mpwatch.nodes.launchers.launch.ChangingNodes`; these do not change.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        """Divide the nodes into batches; nothing is started.

        Args:
            launches: The nodes, reached directly; those without `relay` stay so.
        """
        self._trust = _Trust()
        self._batches: list[_Batch] = []
        found = {launch.name: launch for launch in launches}
        groups: dict[str, list[Launch]] = {}
        for launch in launches:
            if launch.relay is not None:
                groups.setdefault(launch.relay.group, []).append(launch)
        for group in groups.values():
            count = -(-len(group) // BATCH_NODES)
            # Nodes are started in their order: with every so manieth node in one batch, the first
            # ones are the relays.
            for first in range(count):
                batch = _Batch(group[first::count], self._trust)
                self._batches.append(batch)
                found.update({launch.name: launch for launch in batch.launches()})
        self._launches = tuple(found[launch.name] for launch in launches)

    def launches(self) -> Sequence[Launch]:
        """The nodes."""
        return self._launches

    def close(self) -> None:
        """End all relays."""
        for batch in self._batches:
            batch.begin_end()
        end_s = time.monotonic() + 2 * CLOSE_S
        for batch in self._batches:
            batch.wait(max(0.0, end_s - time.monotonic()))


class _Trust:
    """Whether nodes of a job can be reached from others of it."""

    def __init__(self) -> None:
        self.failures = 0
        self.is_proven = False

    @property
    def is_refuted(self) -> bool:
        return self.failures >= FAILURES_ENOUGH and not self.is_proven


class _Batch:
    """Nodes of which one reaches the others. All methods are called by one thread."""

    def __init__(self, launches: Sequence[Launch], trust: _Trust) -> None:
        self._direct = launches
        self._trust = trust
        self._leader = 0
        self._failures = 0
        self._relay: _Relay | None = None
        self._relays: dict[int, tuple[_Relay, RelayPipes]] = {}
        """Through which relay a node was reached last; not if it was directly."""
        self._unreachable: set[int] = set()

    def launches(self) -> list[Launch]:
        """The nodes, reached through the relay."""
        return [
            launch._replace(
                open=partial(self._open, place),
                is_refused=partial(self._is_refused, place),
                start_s=launch.start_s + RELAYS_TRIED * RELAY_START_S,
                descriptors=2 * launch.descriptors + (_OF_RELAY if place == 0 else 0),
            )
            for place, launch in enumerate(self._direct)
        ]

    def begin_end(self) -> None:
        """End the relay, without waiting for that."""
        if self._relay is not None:
            self._relay.begin_end()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the relay."""
        if self._relay is not None:
            self._relay.wait(seconds)

    def _open(self, place: int) -> Pipes:
        self._learn(place)
        self._replace_relay()
        is_direct = self._failures >= RELAYS_TRIED or place in self._unreachable
        if is_direct or (self._trust.is_refuted and place != self._leader):
            return self._direct[place].start()
        while True:
            if self._relay is None:
                self._relay = _Relay(self._direct, self._leader)
            pipes = self._relay.open(place)
            if pipes is not None:
                self._relays[place] = (self._relay, pipes)
                return pipes
            self._replace_relay()

    def _is_refused(self, place: int, told: str) -> bool:
        """Whether a node that has said nothing is to be tried once more, in another way."""
        if place in self._relays:
            return self._learn(place)
        refused = self._direct[place].is_refused
        return refused is not None and refused(told)

    def _learn(self, place: int) -> bool:
        """Note how the last start of a node through a relay has ended.

        Returns:
            Whether nothing has come from there, so that it is to be reached in another way.
        """
        relay, pipes = self._relays.pop(place, (None, None))
        if relay is None or pipes is None or pipes.was_in_use:
            return False
        if relay.is_up and not pipes.is_lost:
            self._unreachable.add(place)
            if place != relay.leader:
                self._trust.failures += 1
                self._trust.is_proven |= relay.has_reached_others
        self._replace_relay()
        return True

    def _replace_relay(self) -> None:
        """Let another node be the relay, if that of one has not started, has ended or hangs."""
        if self._relay is not None and self._relay.is_over:
            self._failures += not self._relay.is_up
            self._relay = None
            self._leader = (self._leader + 1) % len(self._direct)


class RelayPipes(CarriedPipes):
    """Pipes of one node, whose other ends a thread carries to the relay."""

    code: int | None = None
    """The exit code of the launcher, once it is known."""
    was_in_use = False
    """Whether an agent has sent something."""
    is_lost = False
    """Whether the relay has ended before the node."""

    def wait(self) -> int | None:
        """The exit code of the launcher, if it is known."""
        return self.code


class _Relay:
    """The connection to one relay, which a thread serves until its last node has ended."""

    def __init__(self, launches: Sequence[Launch], leader: int) -> None:
        """Start it.

        Args:
            launches: The nodes of the batch, reached directly.
            leader: Which of them runs the relay.

        Raises:
            OSError: The launcher cannot be started.
        """
        self.leader = leader
        self.is_up = self.is_over = self.has_reached_others = False
        others = [place for place in range(len(launches)) if place != leader]
        # The relay has the others in their order, behind its own node.
        self._numbers = {place: number for number, place in enumerate((leader, *others))}
        launch = launches[leader]
        hosts = [each.relay.host for place in others if (each := launches[place]).relay is not None]
        assert launch.relay is not None
        self._process = ChildPipes(launch.relay.command(hosts), launch.environment)
        self._lock = threading.Lock()
        self._new: list[tuple[int, RelayPipes, tuple[int, int, int], int]] = []
        self._pipes: dict[int, RelayPipes] = {}
        self._channels = 0
        self._others: set[int] = set()
        """Channels of the nodes that are reached from its own."""
        self._told = bytearray()
        self._woken, self._wake = os.pipe()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="mpwatch-relay", daemon=True)

    def open(self, place: int) -> RelayPipes | None:
        """Pipes to the agent of a node; `None` if the relay has ended meanwhile."""
        input_read, input_write = os.pipe()
        output_read, output_write = os.pipe()
        error_read, error_write = os.pipe()
        theirs = (input_read, output_write, error_write)
        pipes = RelayPipes(input_write, output_read, error_read)
        with self._lock:
            if self.is_over:
                pipes.kill()
                for descriptor in theirs:
                    os.close(descriptor)
                return None
            self._channels += 1
            self._new.append((self._channels, pipes, theirs, self._numbers[place]))
            os.write(self._wake, b".")
            if not self._thread.is_alive():
                self._thread.start()
        return pipes

    def begin_end(self) -> None:
        """End the relay, without waiting for that."""
        with self._lock:
            self._is_closing = True
            if not self.is_over:
                os.write(self._wake, b".")

    def wait(self, seconds: float) -> None:
        """Wait for its end."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        way = Multiplexer(process.stdout.fileno(), process.stdin.fileno(), waits=True)
        way.watch(self._woken)
        way.watch(process.stderr.fileno())
        try:
            while self._serve(way, way.step(1.0)) and not self._has_nothing_to_do():
                self.has_reached_others |= not way.heard.isdisjoint(self._others)
                limit_s = RELAY_SILENT_S if self.is_up else RELAY_START_S
                if time.monotonic() - way.heard_s > limit_s:
                    return
        finally:
            self._end(way)

    def _has_nothing_to_do(self) -> bool:
        with self._lock:
            self.is_over = self._is_closing or not (self._pipes or self._new)
            return self.is_over

    def _serve(self, way: Multiplexer, seen: Iterable[Event | Happened]) -> bool:
        """Serve what was seen; whether the way is still there."""
        for each in seen:
            if isinstance(each, Event):
                self._take(way, each)
            elif each.what == "closed":
                return False
            elif each.what == "readable":
                self._read(way, each.number)
            elif each.number in self._pipes:  # the head has closed the pipes
                way.send(Kind.END, each.number)
                if each.what == "stuck":
                    self._pipes.pop(each.number)
                    way.remove(each.number)
        return True

    def _take(self, way: Multiplexer, event: Event) -> None:
        if event.kind is Kind.HELLO:
            self.is_up = True
        elif event.kind is Kind.END:
            pipes = self._pipes.pop(event.channel, None)
            if pipes is not None:
                pipes.code = _code(event.data)
                pipes.was_in_use = event.channel in way.heard
                way.finish(event.channel)

    def _read(self, way: Multiplexer, descriptor: int) -> None:
        """Read what the launcher of the relay complains of, or open what was asked for."""
        try:
            data = os.read(descriptor, _TOLD_BYTES)
        except BlockingIOError:
            return
        if descriptor != self._woken:
            if not data:
                way.unwatch(descriptor)
            self._told = (self._told + data)[-_TOLD_BYTES:]
            return
        with self._lock:
            new, self._new = self._new, []
            self._pipes.update({channel: pipes for channel, pipes, _, _ in new})
        for channel, _, (given, output, errors), number in new:
            way.add(channel, {given: Kind.DATA}, {Kind.DATA: output, Kind.ERROR: errors})
            way.send(Kind.OPEN, channel, b"%d" % number)
            if number:
                self._others.add(channel)

    def _end(self, way: Multiplexer) -> None:
        """End the relay, and tell those that wait for it why."""
        with self._lock:
            self.is_over = True
            new, self._new = self._new, []
        process = self._process
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.close()
        end_s = time.monotonic() + CLOSE_S
        while not process.has_ended() and time.monotonic() < end_s:
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            self._told += os.read(process.stderr.fileno(), _TOLD_BYTES) or b""
        if not process.has_ended():
            process.kill_all()
        code = process.wait()
        told = bytes(self._told) or way.text.encode("utf-8", "replace")
        for channel, _, (given, output, errors), _ in new:
            way.add(channel, {given: Kind.DATA}, {Kind.DATA: output, Kind.ERROR: errors})
        for channel, pipes in (*self._pipes.items(), *((c, p) for c, p, _, _ in new)):
            pipes.code = code
            pipes.was_in_use, pipes.is_lost = channel in way.heard, True
            way.tell(channel, Kind.ERROR, told)
        way.close()
        for descriptor in (self._woken, self._wake):
            os.close(descriptor)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _code(data: bytes) -> int | None:
    """An exit code as the relay has sent it."""
    digits = data.removeprefix(b"-")
    return int(data) if digits.isdigit() and len(digits) < 4 else None
