"""Several pairs of pipes over one: what a relay and its head send to each other.

A relay runs on one node and has the pipes to the agents of others (`mpwatch.nodes.agent.relay`).
Between it and the head are frames (`mpwatch.nodes.wire.messages`) with another body: what it is,
the number of a channel, and bytes that are carried as they are. A channel is one start of one
agent.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from mpwatch.nodes.wire.messages import CHUNK_BYTES, MAGIC, PROTOCOL, FrameReader, encode

UNSENT_BYTES_LIMIT = 1 << 16
"""While so much is not sent yet, nothing more is read that would be sent."""
STUCK_BYTES = 1 << 17
"""A program that has left so much of what is for it unread does not read any more."""
_HEAD = struct.Struct(">BI")
_FRAME_LIMIT = _HEAD.size + CHUNK_BYTES


class Kind(IntEnum):
    """What a message is."""

    HELLO = 0
    """Of the relay: it is there. Sent again while there is nothing else to send."""
    OPEN = 1
    """Of the head: start the agent of the node with this number, decimal digits."""
    DATA = 2
    """For the input of the agent, or from its output."""
    ERROR = 3
    """From the standard error of the agent's launcher."""
    END = 4
    """Of the head: close the input of the agent. Of the relay: it has ended, and its exit code as
    decimal digits."""


class Event(NamedTuple):
    """A message that carries no bytes of a channel."""

    kind: Kind
    channel: int
    data: bytes = b""


class Happened(NamedTuple):
    """What was seen on this side."""

    what: str
    """`ended`: the source of `DATA` of a channel; `stuck`: a channel whose bytes nobody reads;
    `closed`: the connection to the other side; `readable`: a descriptor that is watched."""
    number: int = 0
    """Of the channel, or the descriptor."""


@dataclass(slots=True)
class _Channel:
    sources: dict[int, Kind]
    sinks: dict[Kind, int]
    unsent: dict[Kind, bytearray] = field(default_factory=dict)
    is_over: bool = False
    """Whether it is removed once nothing is unsent."""


class Multiplexer:
    """Carries the bytes of channels between their descriptors and the connection to the other side.

    It closes the descriptors of channels, and none of the way.
    """

    def __init__(self, source: int, sink: int, *, waits: bool) -> None:
        """Make it without a channel.

        Args:
            source: Descriptor from which the other side is read.
            sink: Descriptor to which it is written.
            waits: Read nothing more from the other side while a channel does not accept what was
                sent to it; otherwise that is noted as `stuck`, and the other channels go on.
        """
        self._source, self._sink, self._waits = source, sink, waits
        self._reader = FrameReader(_FRAME_LIMIT)
        self._unsent = bytearray()
        self._channels: dict[int, _Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._registered: dict[int, int] = {}
        self._watched: set[int] = set()
        self._is_closed = False
        self.heard_s = time.monotonic()
        """When something has arrived from the other side, or it was made."""
        self.heard: set[int] = set()
        """The channels for which the other side has sent frames, not only what a login shell
        printed."""
        for descriptor in (source, sink):
            os.set_blocking(descriptor, False)

    @property
    def text(self) -> str:
        """What the other side has sent that is no frame, not sanitized."""
        return self._reader.text

    def watch(self, descriptor: int) -> None:
        """Note when something can be read from a descriptor."""
        self._watched.add(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        self._watched.discard(descriptor)

    def add(self, number: int, sources: Mapping[int, Kind], sinks: Mapping[Kind, int]) -> None:
        """Add a channel.

        Args:
            number: Its number, never used before.
            sources: Descriptors to read from, with the kind of message that their bytes become.
            sinks: Descriptors to write to, by the kind of message whose bytes they get.
        """
        for descriptor in (*sources, *sinks.values()):
            os.set_blocking(descriptor, False)
        self._channels[number] = _Channel(dict(sources), dict(sinks))

    def close_sink(self, number: int, kind: Kind) -> None:
        """Close one descriptor that a channel writes to."""
        channel = self._channels.get(number)
        if channel is not None and kind in channel.sinks:
            channel.unsent.pop(kind, None)
            self._close(channel.sinks.pop(kind))

    def remove(self, number: int) -> None:
        """Carry what is there, without waiting, and close the descriptors of a channel."""
        channel = self._channels.get(number)
        if channel is None:
            return
        self.heard.discard(number)
        for descriptor in list(channel.sources):
            self._read_source(number, descriptor)
        for kind in list(channel.unsent):
            self._write_sink(channel, kind)
        del self._channels[number]
        for descriptor in (*channel.sources, *channel.sinks.values()):
            self._close(descriptor)

    def finish(self, number: int) -> None:
        """Remove a channel once its bytes are with those that read them."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.is_over = True

    def send(self, kind: Kind, number: int = 0, data: bytes = b"") -> None:
        """Send a message as soon as the other side accepts it."""
        self._unsent += encode(_HEAD.pack(kind, number) + data, _FRAME_LIMIT, PROTOCOL)

    def tell(self, number: int, kind: Kind, data: bytes) -> None:
        """Write to a descriptor of a channel what the other side has not sent."""
        channel = self._channels.get(number)
        if channel is not None and kind in channel.sinks:
            self._put(channel, kind, data)

    @property
    def is_idle(self) -> bool:
        """Whether all is sent."""
        return not self._unsent

    def step(self, timeout_s: float) -> Iterator[Event | Happened]:
        """Carry bytes for at most this long; messages of other kinds, and what was seen.

        What follows a message is carried after the caller has served that: bytes for a channel may
        have arrived together with the message that opens it. A way that has closed is noted once.
        """
        for number, channel in list(self._channels.items()):
            if channel.is_over and not any(channel.unsent.values()):
                self.remove(number)
        self._register()
        for key, mask in self._selector.select(timeout_s):
            descriptor = key.fd
            if descriptor == self._source and mask & selectors.EVENT_READ:
                yield from self._read_way()
            elif descriptor == self._sink:
                yield from self._write_way()
            elif descriptor in self._watched:
                yield Happened("readable", descriptor)
            else:
                yield from self._serve(descriptor)

    def close(self) -> None:
        """Close the descriptors of all channels."""
        for number in list(self._channels):
            channel = self._channels.pop(number)
            for descriptor in (*channel.sources, *channel.sinks.values()):
                self._close(descriptor)
        self._selector.close()

    # --- which descriptors are waited for ---------------------------------------------------------

    def _register(self) -> None:
        """Register what is to be waited for now, where that has changed."""
        wanted: dict[int, int] = dict.fromkeys(self._watched, selectors.EVENT_READ)
        is_full = len(self._unsent) >= UNSENT_BYTES_LIMIT
        blocked = False
        for channel in self._channels.values():
            if not is_full:
                wanted.update(dict.fromkeys(channel.sources, selectors.EVENT_READ))
            for kind, unsent in channel.unsent.items():
                if unsent:
                    wanted[channel.sinks[kind]] = selectors.EVENT_WRITE
                    blocked = True
        if not self._is_closed:
            if not (self._waits and blocked):
                wanted[self._source] = selectors.EVENT_READ
            if self._unsent:
                wanted[self._sink] = wanted.get(self._sink, 0) | selectors.EVENT_WRITE
        for descriptor in self._registered.keys() - wanted.keys():
            self._selector.unregister(descriptor)
        for descriptor, events in wanted.items():
            before = self._registered.get(descriptor)
            if before is None:
                self._selector.register(descriptor, events)
            elif before != events:
                self._selector.modify(descriptor, events)
        self._registered = wanted

    def _close(self, descriptor: int) -> None:
        if self._registered.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)

    # --- bytes ------------------------------------------------------------------------------------

    def _serve(self, descriptor: int) -> list[Event | Happened]:
        """Read from, or write to, a descriptor of a channel."""
        for number, channel in self._channels.items():
            if descriptor in channel.sources:
                return self._read_source(number, descriptor)
            for kind, sink in channel.sinks.items():
                if sink == descriptor:
                    return self._stuck(number) if not self._write_sink(channel, kind) else []
        return []

    def _read_source(self, number: int, descriptor: int) -> list[Event | Happened]:
        channel = self._channels[number]
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            self.send(channel.sources[descriptor], number, data)
            return []
        kind = channel.sources.pop(descriptor)
        self._close(descriptor)
        return [Happened("ended", number)] if kind is Kind.DATA else []

    def _write_sink(self, channel: _Channel, kind: Kind) -> bool:
        """Write what is unsent; whether somebody still reads it."""
        unsent = channel.unsent[kind]
        try:
            del unsent[: os.write(channel.sinks[kind], unsent)]
        except BlockingIOError:
            return len(unsent) <= STUCK_BYTES or self._waits
        except OSError:
            unsent.clear()
            return False
        return True

    @staticmethod
    def _stuck(number: int) -> list[Event | Happened]:
        return [Happened("stuck", number)]

    def _read_way(self) -> Iterator[Event | Happened]:
        try:
            data = os.read(self._source, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            yield from self._closed()
        self.heard_s = time.monotonic()
        for frame in self._reader.feed(data):
            if frame.protocol == PROTOCOL and len(frame.body) >= _HEAD.size:
                kind, number = _HEAD.unpack_from(frame.body)
                yield from self._take(kind, number, frame.body[_HEAD.size :])

    def _take(self, kind: int, number: int, data: bytes) -> list[Event | Happened]:
        """Take one message; what is no message, or for a channel that is no more, is dropped."""
        if kind > Kind.END:
            return []
        if kind not in (Kind.DATA, Kind.ERROR):
            return [Event(Kind(kind), number, data)]
        channel = self._channels.get(number)
        if channel is None or Kind(kind) not in channel.sinks:
            return []
        if kind == Kind.DATA and MAGIC in data:
            self.heard.add(number)
        return [] if self._put(channel, Kind(kind), data) else self._stuck(number)

    def _put(self, channel: _Channel, kind: Kind, data: bytes) -> bool:
        channel.unsent.setdefault(kind, bytearray()).extend(data)
        return self._write_sink(channel, kind)

    def _write_way(self) -> list[Event | Happened]:
        try:
            del self._unsent[: os.write(self._sink, memoryview(self._unsent)[:CHUNK_BYTES])]
        except BlockingIOError:
            return []
        except OSError:
            return self._closed()
        return []

    def _closed(self) -> list[Event | Happened]:
        if self._is_closed:
            return []
        self._is_closed = True
        self._unsent.clear()
        return [Happened("closed")]
