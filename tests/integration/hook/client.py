"""A minimal client of the hook's protocol."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpwatch.hook import wire
from tests.procfs import eventually


class Client:
    """A connection to one hook."""

    def __init__(self, path: Path, timeout_s: float = 30.0) -> None:
        self.sock = _connected(path, timeout_s)
        self._rest = b""
        self.notes: list[dict[str, Any]] = []
        self.records: list[tuple[int, ...]] = []
        self.lost = 0
        self._number = 0
        self.last: tuple[int, bytes] | None = None

    def frame(self) -> tuple[int, bytes]:
        """The next frame; records and notes are kept on the way."""
        while True:
            if len(self._rest) >= wire.FRAME.size:
                length, kind = wire.FRAME.unpack_from(self._rest)
                end = wire.FRAME.size + length
                if len(self._rest) >= end:
                    payload, self._rest = self._rest[wire.FRAME.size : end], self._rest[end:]
                    self._keep(kind, payload)
                    return kind, payload
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._rest += data

    def hello(self) -> dict[str, Any]:
        kind, payload = self.frame()
        assert kind == wire.HELLO
        hello: dict[str, Any] = json.loads(payload)
        return hello

    def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        request = {"ask": name, "id": self._number, **fields}
        self.sock.sendall(wire.pack_frame(wire.REQUEST, json.dumps(request).encode()))
        while True:
            kind, payload = self.frame()
            if kind == wire.REPLY:
                reply: dict[str, Any] = json.loads(payload)
                assert reply["id"] == self._number
                return reply

    def listen_for(self, kind: int, count: int, deadline_s: float = 60.0) -> list[tuple[int, ...]]:
        """Read until so many records of a kind have arrived."""
        end_s = time.monotonic() + deadline_s
        while True:
            found = [record for record in self.records if record[2] == kind]
            if len(found) >= count or time.monotonic() > end_s:
                return found
            self.frame()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_to_the_end(self) -> None:
        """Read until the connection ends, which raises; `last` then holds the last frame."""
        while True:
            self.last = self.frame()

    def close(self) -> None:
        self.sock.close()

    def _keep(self, kind: int, payload: bytes) -> None:
        if kind == wire.NOTE:
            self.notes.append(json.loads(payload))
        elif kind == wire.RECORDS:
            self.lost = wire.LOST.unpack_from(payload)[0]
            self.records += wire.RECORD.iter_unpack(payload[wire.LOST.size :])


def sockets(folder: Path) -> dict[int, Path]:
    """The sockets in a runtime directory, by pid."""
    return {int(path.name.split("-")[0]): path for path in folder.glob("mpwatch/*.sock")}


def _connected(path: Path, timeout_s: float) -> socket.socket:
    """A connection to a hook; one that has bound its socket may not listen yet."""
    end_s = time.monotonic() + timeout_s
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(timeout_s)
        try:
            client.connect(str(path))
        except OSError as error:
            client.close()
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() > end_s:
                raise
            time.sleep(0.01)
        else:
            return client


def wait_for_sockets(folder: Path, count: int) -> dict[int, Path]:
    """Wait until so many hooks have opened their socket."""
    found: dict[int, Path] = {}

    def are_open() -> bool:
        nonlocal found
        found = sockets(folder)
        return len(found) >= count

    assert eventually(are_open), found
    return found


def ring_records(path: Path) -> Iterator[tuple[int, ...]]:
    """The complete records in a ring file, oldest first."""
    data = path.read_bytes()
    slots = range(wire.HEADER_BYTES, len(data), wire.RECORD_BYTES)
    rows = [wire.RECORD.unpack_from(data, offset) for offset in slots]
    return iter(sorted(row for row in rows if row[0]))
