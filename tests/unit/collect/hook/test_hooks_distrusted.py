"""A socket that is not the process's hook, or does not follow the protocol, is refused with the
reason."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookNote, HookStatus
from mpwatch.model.ids import ProcessId
from tests.builders.hook_server import ME, NAME, ObservedHooks, records
from tests.conftest import Start


def test_another_protocol_is_refused_with_both_numbers(observed: ObservedHooks) -> None:
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    hook.introduce(protocol=99)

    (status,) = observed.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert f"protocol 99, this mpwatch {wire.PROTOCOL}" in status.reason


def test_a_hook_of_another_process_is_refused(observed: ObservedHooks) -> None:
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    hook.introduce(start_ticks=1)

    (status,) = observed.poll()

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
def test_garbage_before_the_hello_ends_the_connection(
    observed: ObservedHooks, garbage: bytes
) -> None:
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    assert hook.peer is not None
    hook.peer.sendall(garbage)

    (status,) = observed.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert observed.poll() == []


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
def test_garbage_later_ends_it_as_well(observed: ObservedHooks, garbage: bytes) -> None:
    hook = observed.ready()
    assert hook.peer is not None
    hook.peer.sendall(garbage)

    (*_, status) = observed.poll()

    assert isinstance(status, HookStatus)
    assert status.state == "absent"
    assert observed.clients.ask(ME, "ping") is not None


def test_hostile_text_is_cleaned_and_bounded(observed: ObservedHooks) -> None:
    hook = observed.ready()
    deep: Any = "\x1b[2J"
    for _ in range(40):
        deep = [deep]
    said = {"kind": "e\x1b[31mx", "at_ns": 1, "text": "y" * 100_000, "k\x07": "v\nw", "deep": deep}
    hook.say(wire.NOTE, said)

    (note,) = observed.poll()

    assert isinstance(note, HookNote)
    assert note.kind == "ex"
    assert len(note.data["text"]) <= 4096
    assert "v w" in note.data.values()
    assert "\x1b" not in repr(note.data)


def test_a_directory_open_to_others_is_not_trusted(observed: ObservedHooks) -> None:
    observed.hook()
    observed.folder.chmod(0o755)

    assert "is open to other users" in observed.reason()


def test_a_link_in_place_of_the_directory_is_not_followed(observed: ObservedHooks) -> None:
    observed.folder.rename(observed.folder.parent / "elsewhere")
    observed.folder.symlink_to(observed.folder.parent / "elsewhere")

    assert "symbolic link" in observed.reason()


def test_a_file_in_place_of_the_socket_is_refused(observed: ObservedHooks) -> None:
    (observed.folder / NAME).write_text("x")

    assert "is not a socket" in observed.reason()


def test_a_stale_socket_is_reported_as_stale(observed: ObservedHooks) -> None:
    observed.hook().close()

    assert "stale" in observed.reason()


def test_a_socket_that_another_process_answers_is_refused(
    observed: ObservedHooks, start: Start
) -> None:
    other = ProcessId(start(["sleep", "60"]).pid, 5)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(observed.folder / (wire.stem(*other) + wire.SOCKET_SUFFIX)))
    listener.listen()
    observed.sample = replace(observed.sample, process=other)

    reason = observed.reason()
    listener.close()

    assert f"process {os.getpid()} of uid {os.getuid()} answers in its place" in reason


def test_a_process_in_a_container_is_found_by_its_pid_there(observed: ObservedHooks) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(observed.folder / (wire.stem(7, ME.start_ticks) + wire.SOCKET_SUFFIX)))
    listener.listen()
    observed.sample = replace(observed.sample, ns_pid=7)
    found = observed.look()
    listener.close()

    assert found == []
