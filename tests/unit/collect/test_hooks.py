"""Hooks as this process plays them: real sockets, made from the wire format."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.hooks import AGAIN_S, HookClients
from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookNote, HookSlice, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.inputs import Input
from mpwatch.model.samples import ProcSample, StacksTaken

ME = ProcessId(os.getpid(), 12345)
NAME = wire.stem(*ME) + wire.SOCKET_SUFFIX


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeHook:
    """The other end: listens like a hook, says what it is told."""

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


class World:
    """A runtime directory, the observer, and its clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mpwatch"
        self.folder.mkdir(mode=0o700)
        self.clock = Clock()
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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.clients.close()
    for hook in made.hooks:
        hook.close()


def records(*numbers: int, lost: int = 0) -> bytes:
    rows = (wire.RECORD.pack(n + 1, 5, wire.SHARE, 0, 1, 2, 3, 4, 5, 6) for n in numbers)
    return wire.LOST.pack(lost) + b"".join(rows)


def test_a_hook_introduces_itself_and_is_ready(world: World) -> None:
    hook = world.hook()
    world.clients.watch([world.sample])
    hook.accept()
    hook.introduce()

    hello, status = world.poll()

    assert isinstance(hello, HookHello)
    assert (hello.process, hello.python, hello.torch) == (ME, "3.11.7", "2.13.0")
    assert hello.missing == {"torch.x": "is not there"}
    assert hello.data == {"strategy": "file_descriptor"}
    assert status == HookStatus(ME, 100.0, "ready")


def test_without_a_hook_it_is_said_once_to_be_absent(world: World) -> None:
    assert world.reason() == "no hook in this process"
    assert world.look() == []


def test_a_hook_that_comes_later_is_found(world: World) -> None:
    world.look()

    world.ready()


def test_processes_that_cannot_have_a_hook_are_not_asked(world: World) -> None:
    from dataclasses import replace

    world.clients.watch([replace(world.sample, is_python=False), replace(world.sample, state="Z")])

    assert world.poll() == []


def test_records_come_decoded_with_the_count_of_lost_ones(world: World) -> None:
    hook = world.ready()
    hook.say(wire.RECORDS, records(7, 8, lost=7))

    (found,) = world.poll()

    assert isinstance(found, HookSlice)
    assert [event.sequence for event in found.events] == [7, 8]
    assert found.lost == 7


def test_frames_may_arrive_in_any_pieces(world: World) -> None:
    hook = world.ready()
    assert hook.peer is not None
    whole = wire.pack_frame(wire.RECORDS, records(1)) + wire.pack_frame(
        wire.NOTE, b'{"kind": "birth", "at_ns": 9, "pid": 4}'
    )
    found: list[Input] = []
    for byte in whole:
        hook.peer.sendall(bytes([byte]))
        found += world.poll()

    assert [type(each) for each in found] == [HookSlice, HookNote]
    assert found[1] == HookNote(ME, 9, "birth", {"pid": 4})


def test_questions_are_answered_by_their_number(world: World) -> None:
    hook = world.ready()
    assert world.clients.ask(ME, "gauges") is None
    assert world.clients.ask(ME, "stacks") is None
    first, second = hook.asked(), hook.asked()
    threads = [{"tid": 5, "name": "MainThread", "frames": [["f", "a.py", 3], ["broken"]]}]
    hook.say(wire.REPLY, {"id": second["id"], "threads": threads})
    hook.say(wire.REPLY, {"id": first["id"], "cache": {"entries": 5}})
    hook.say(wire.REPLY, {"id": 999, "cache": {}})

    stacks, gauges = world.poll()

    assert isinstance(stacks, StacksTaken)
    assert stacks.source == "hook"
    assert stacks.stacks[0].frames[0][:3] == ("f", "a.py", 3)
    assert len(stacks.stacks[0].frames) == 1
    assert gauges == HookGauges(ME, 100.0, {"cache": {"entries": 5}})


def test_no_answer_in_time_is_silence_and_any_word_ends_it(world: World) -> None:
    hook = world.ready()
    world.clients.ask(ME, "ping")
    world.clock.now_s += 0.2
    assert world.poll() == []

    world.clock.now_s += 0.1
    (silent,) = world.poll()
    hook.say(wire.REPLY, {"id": hook.asked()["id"]})
    (ready,) = world.poll()
    world.clock.now_s += 10

    assert isinstance(silent, HookStatus)
    assert silent.state == "silent"
    assert "250 ms" in silent.reason
    assert isinstance(ready, HookStatus)
    assert ready.state == "ready"
    assert world.poll() == []


def test_a_connection_without_introduction_is_silent(world: World) -> None:
    world.hook()
    world.clients.watch([world.sample])
    world.clock.now_s += 0.3

    (status,) = world.poll()

    assert isinstance(status, HookStatus)
    assert (status.state, "introduction" in status.reason) == ("silent", True)


def test_a_hook_that_was_taken_out_is_absent_for_that_reason_from_then_on(world: World) -> None:
    hook = world.ready()
    hook.say(wire.GOODBYE, {"reason": "detach"})
    hook.listener.close()
    os.unlink(world.folder / NAME)

    (status,) = world.poll()
    world.clock.now_s += AGAIN_S + 1

    assert status == HookStatus(ME, 100.0, "absent", "it was taken out")
    assert world.look() == []
    assert world.clients.ask(ME, "ping") == f"There is no hook in process {ME.pid}."


def test_after_a_broken_connection_nothing_is_told_twice(world: World) -> None:
    hook = world.ready()
    hook.say(wire.RECORDS, records(1, 2))
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 50})
    assert len(world.poll()) == 2
    assert hook.peer is not None
    hook.peer.close()
    (gone,) = world.poll()
    assert isinstance(gone, HookStatus)
    assert gone.state == "gone"

    world.clock.now_s += AGAIN_S + 1
    world.clients.watch([world.sample])
    hook.accept()
    hook.introduce()
    hook.say(wire.RECORDS, records(1, 2, 3))
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 50})
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 60})
    found = world.poll()

    assert [type(each) for each in found] == [HookHello, HookStatus, HookSlice, HookNote]
    assert isinstance(found[2], HookSlice)
    assert [event.sequence for event in found[2].events] == [3]


def test_another_protocol_is_refused_with_both_numbers(world: World) -> None:
    hook = world.hook()
    world.clients.watch([world.sample])
    hook.accept()
    hook.introduce(protocol=99)

    (status,) = world.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert f"protocol 99, this mpwatch {wire.PROTOCOL}" in status.reason


def test_a_hook_of_another_process_is_refused(world: World) -> None:
    hook = world.hook()
    world.clients.watch([world.sample])
    hook.accept()
    hook.introduce(start_ticks=1)

    (status,) = world.poll()

    assert isinstance(status, HookStatus)
    assert "another process" in status.reason


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,
        wire.pack_frame(wire.RECORDS, records(1)),
        wire.pack_frame(wire.HELLO, b"not json"),
        wire.pack_frame(wire.HELLO, b"[1]"),
        wire.pack_frame(wire.HELLO, b"[" * 100_000),
    ],
    ids=["noise", "no hello", "no JSON", "no object", "deep JSON"],
)
def test_garbage_before_the_introduction_ends_the_conversation(
    world: World, garbage: bytes
) -> None:
    hook = world.hook()
    world.clients.watch([world.sample])
    hook.accept()
    assert hook.peer is not None
    hook.peer.sendall(garbage)

    (status,) = world.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert world.poll() == []


@pytest.mark.parametrize(
    "garbage",
    [
        wire.FRAME.pack(wire.MAX_FRAME_BYTES + 1, wire.NOTE),
        wire.pack_frame(wire.RECORDS, b"123"),
        wire.pack_frame(wire.RECORDS, wire.LOST.pack(0) + b"x" * 63),
        wire.pack_frame(wire.NOTE, b"\xff\xfe"),
    ],
    ids=["long frame", "short slice", "half a record", "no JSON"],
)
def test_garbage_later_ends_it_as_well(world: World, garbage: bytes) -> None:
    hook = world.ready()
    assert hook.peer is not None
    hook.peer.sendall(garbage)

    (*_, status) = world.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert world.clients.ask(ME, "ping") is not None


def test_a_kind_of_frame_from_the_future_is_skipped(world: World) -> None:
    hook = world.ready()
    hook.say(55, b"\x00\x01")
    hook.say(wire.GAUGES, {"a": 1})

    assert world.poll() == [HookGauges(ME, 100.0, {"a": 1})]


def test_hostile_text_is_cleaned_and_bounded(world: World) -> None:
    hook = world.ready()
    deep: Any = "\x1b[2J"
    for _ in range(40):
        deep = [deep]
    said = {"kind": "e\x1b[31mx", "at_ns": 1, "text": "y" * 100_000, "k\x07": "v\nw", "deep": deep}
    hook.say(wire.NOTE, said)

    (note,) = world.poll()

    assert isinstance(note, HookNote)
    assert note.kind == "ex"
    assert len(note.data["text"]) <= 4096
    assert "v w" in note.data.values()
    assert "\x1b" not in repr(note.data)


def test_a_directory_open_to_others_is_not_trusted(world: World) -> None:
    world.hook()
    world.folder.chmod(0o755)

    assert "is open to other users" in world.reason()


def test_a_link_in_place_of_the_directory_is_not_followed(world: World) -> None:
    world.folder.rename(world.folder.parent / "elsewhere")
    world.folder.symlink_to(world.folder.parent / "elsewhere")

    assert "symbolic link" in world.reason()


def test_a_file_in_place_of_the_socket_is_refused(world: World) -> None:
    (world.folder / NAME).write_text("x")

    assert "is not a socket" in world.reason()


def test_a_stale_socket_is_said_to_be_stale(world: World) -> None:
    world.hook().close()

    assert "stale" in world.reason()


def test_a_socket_that_another_process_answers_is_refused(world: World) -> None:
    from dataclasses import replace

    other = ProcessId(os.getppid(), 5)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(world.folder / (wire.stem(*other) + wire.SOCKET_SUFFIX)))
    listener.listen()
    world.sample = replace(world.sample, process=other)

    reason = world.reason()
    listener.close()

    assert f"process {os.getpid()} of uid {os.getuid()} answers in its place" in reason


def test_a_process_in_a_container_is_found_by_its_number_in_there(world: World) -> None:
    from dataclasses import replace

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(world.folder / (wire.stem(7, ME.start_ticks) + wire.SOCKET_SUFFIX)))
    listener.listen()
    world.sample = replace(world.sample, ns_pid=7)
    found = world.look()
    listener.close()

    assert found == []


def test_a_full_queue_of_connections_does_not_block(world: World) -> None:
    hook = world.hook()
    hook.listener.listen(0)
    waiting = []
    for _ in range(8):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        waiting.append(client)
        try:
            client.connect(str(world.folder / NAME))
        except BlockingIOError:
            break
    reason = world.reason()
    for client in waiting:
        client.close()

    assert "queue is full" in reason


def test_a_hook_that_does_not_read_is_not_waited_for(world: World) -> None:
    world.ready()

    answers = {world.clients.ask(ME, "ping") for _ in range(100)}

    assert answers == {None, f"The hook of process {ME.pid} does not answer."}


def test_the_ring_of_a_silent_process_is_read_from_its_file(world: World) -> None:
    header = bytearray(wire.HEADER_BYTES)
    wire.HEADER.pack_into(header, 0, wire.MAGIC, 1, 4096, 64, 4, *ME, 1, 2)
    row = wire.RECORD.pack(1, 5, wire.LOADER_FETCH_BEGIN, 0, 1, 2, 3, 4, 5, 6)
    path = world.folder / (wire.stem(*ME) + wire.RING_SUFFIX)
    path.write_bytes(bytes(header) + row + bytes(3 * 64))

    found = world.clients.black_box(world.sample)

    assert found is not None
    assert [event.kind for event in found.events] == [wire.LOADER_FETCH_BEGIN]
    path.unlink()
    assert world.clients.black_box(world.sample) is None
