"""Hooks imitated in this process: real sockets that speak the wire format."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from mpwatch.collect.hook.client import HookClients
from mpwatch.hook import wire
from mpwatch.model.events import HookHello, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from tests.builders.clock import Clock

ME = ProcessId(os.getpid(), 12345)
NAME = wire.stem(*ME) + wire.SOCKET_SUFFIX


class FakeHook:
    """A socket that listens like a hook and sends what a test gives it."""

    def __init__(self, folder: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / NAME))
        self.listener.listen()
        self.peer: socket.socket | None = None

    def accept(self) -> None:
        self.peer, _ = self.listener.accept()

    def say(self, kind: int, what: dict[str, Any] | bytes) -> None:
        assert self.peer is not None
        payload = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.peer.sendall(wire.pack_frame(kind, payload))

    def introduce(self, **changes: Any) -> None:
        said = {
            "protocol": wire.PROTOCOL,
            "pid": ME.pid,
            "start_ticks": ME.start_ticks,
            "python": "3.11.7",
            "torch": "2.13.0",
            "started_by": "run",
            "missing": {"torch.x": "is not there\x1b[31m"},
            "strategy": "file_descriptor",
        }
        self.say(wire.HELLO, {**said, **changes})

    def asked(self) -> dict[str, Any]:
        assert self.peer is not None
        length, kind = wire.FRAME.unpack(self.peer.recv(wire.FRAME.size))
        assert kind == wire.REQUEST
        request: dict[str, Any] = json.loads(self.peer.recv(length))
        return request

    def close(self) -> None:
        self.listener.close()
        if self.peer is not None:
            self.peer.close()


class ObservedHooks:
    """A runtime directory, the observer, and its clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mpwatch"
        self.folder.mkdir(mode=0o700)
        self.clock = Clock(100.0)
        self.clients = HookClients(clock=self.clock)
        self.sample = ProcSample(
            process=ME,
            at_s=0.0,
            parent_pid=1,
            name="python",
            cmdline=(),
            state="S",
            is_python=True,
            uid=os.getuid(),
            environment={"XDG_RUNTIME_DIR": str(folder)},
        )
        self.hooks: list[FakeHook] = []

    def hook(self) -> FakeHook:
        self.hooks.append(FakeHook(self.folder))
        return self.hooks[-1]

    def ready(self) -> FakeHook:
        """A hook that was found, accepted and has introduced itself."""
        hook = self.hook()
        self.clients.watch([self.sample])
        hook.accept()
        hook.introduce()
        assert [type(each) for each in self.poll()] == [HookHello, HookStatus]
        return hook

    def look(self) -> list[Input]:
        self.clients.watch([self.sample])
        return self.poll()

    def poll(self) -> list[Input]:
        return self.clients.poll(0.0)

    def reason(self) -> str:
        (status,) = self.look()
        assert isinstance(status, HookStatus)
        assert status.state == "absent"
        return status.reason


def records(*numbers: int, lost: int = 0) -> bytes:
    rows = (wire.RECORD.pack(n + 1, n + 5, wire.SHARE, 0, 1, 2, 3, 4, 5, 6) for n in numbers)
    return wire.LOST.pack(lost) + b"".join(rows)
