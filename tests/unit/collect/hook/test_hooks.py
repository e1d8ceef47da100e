"""The protocol between a hook and an observer."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.hook import decode, discovery
from mpwatch.collect.hook.client import SEARCH_AGAIN_S
from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.samples import ProcSample, StacksTaken
from tests.builders.hook_server import ME, NAME, FakeHook, ObservedHooks, records


def test_a_hook_that_sends_its_hello_is_ready(observed: ObservedHooks) -> None:
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    hook.introduce()

    hello, status = observed.poll()

    assert isinstance(hello, HookHello)
    assert (hello.process, hello.python, hello.torch) == (ME, "3.11.7", "2.13.0")
    assert hello.missing == {"torch.x": "is not there"}
    assert hello.data == {"strategy": "file_descriptor"}
    assert status == HookStatus(ME, 100.0, "ready")


def test_a_missing_hook_is_reported_once(observed: ObservedHooks) -> None:
    assert observed.reason() == "no hook in this process"
    assert observed.look() == []


def test_a_hook_that_is_attached_later_is_found(observed: ObservedHooks) -> None:
    assert observed.reason() == "no hook in this process"

    hook = observed.ready()
    hook.say(wire.RECORDS, records(1))
    assert [type(each) for each in observed.poll()] == [HookSlice]


def test_a_process_is_searched_again_when_its_directory_changes_or_after_a_while(
    observed: ObservedHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[bool] = []
    connect = discovery.connect

    def counted(sample: ProcSample, proc: str, *, thorough: bool, **more: Any) -> socket.socket:
        searches.append(thorough)
        return connect(sample, proc, thorough=thorough, **more)

    monkeypatch.setattr(discovery, "connect", counted)
    os.utime(observed.folder, (1, 1))
    observed.look()
    observed.look()
    assert searches == [True]

    os.utime(observed.folder, (2, 2))
    observed.look()
    observed.look()
    assert searches == [True, False]

    observed.clock.now_s += SEARCH_AGAIN_S
    observed.look()
    assert searches == [True, False, True]

    observed.ready()
    observed.look()
    assert searches == [True, False, True, False]


def test_a_directory_that_has_just_changed_is_searched_again(
    observed: ObservedHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a change has the resolution of a tick: a second one may have the same."""
    monkeypatch.setattr(discovery, "RECENT_NS", 1 << 62)
    observed.look()
    unchanged = os.stat(observed.folder).st_mtime_ns
    observed.hook()
    os.utime(observed.folder, ns=(unchanged, unchanged))
    observed.look()

    assert ME in observed.clients.links


def test_processes_that_cannot_have_a_hook_are_not_asked(observed: ObservedHooks) -> None:
    from msgspec.structs import replace

    observed.clients.watch(
        [replace(observed.sample, is_python=False), replace(observed.sample, state="Z")]
    )

    assert observed.poll() == []


def test_records_come_decoded_with_the_count_of_lost_ones(observed: ObservedHooks) -> None:
    hook = observed.ready()
    hook.say(wire.RECORDS, records(7, 8, lost=7))

    (found,) = observed.poll()

    assert isinstance(found, HookSlice)
    assert [event.sequence for event in found.events] == [7, 8]
    assert found.lost == 7


def test_frames_may_arrive_in_any_pieces(observed: ObservedHooks) -> None:
    hook = observed.ready()
    assert hook.peer is not None
    whole = wire.pack_frame(wire.RECORDS, records(1)) + wire.pack_frame(
        wire.NOTE, b'{"kind": "start", "at_ns": 9, "pid": 4}'
    )
    found: list[Input] = []
    for byte in whole:
        hook.peer.sendall(bytes([byte]))
        found += observed.poll()

    assert [type(each) for each in found] == [HookSlice, HookNote]
    assert found[1] == HookNote(ME, 9, "start", {"pid": 4})


@pytest.mark.parametrize(
    ("former", "present"), [("birth", "start"), ("ticket-failed", "receive-failed")]
)
def test_a_kind_of_note_of_an_older_hook_has_its_present_name(former: str, present: str) -> None:
    found = decode.note(ME, {"kind": former, "at_ns": 9})

    assert (found.kind, decode.note(ME, {"kind": present, "at_ns": 9})) == (present, found)


def test_answers_are_matched_to_requests_by_number(observed: ObservedHooks) -> None:
    hook = observed.ready()
    assert observed.clients.ask(ME, "gauges") is None
    assert observed.clients.ask(ME, "stacks") is None
    first, second = hook.asked(), hook.asked()
    threads = [{"tid": 5, "name": "MainThread", "frames": [["f", "a.py", 3], ["broken"]]}]
    hook.say(wire.REPLY, {"id": second["id"], "threads": threads})
    hook.say(wire.REPLY, {"id": first["id"], "cache": {"entries": 5}})
    hook.say(wire.REPLY, {"id": 999, "cache": {}})

    stacks, gauges = observed.poll()

    assert isinstance(stacks, StacksTaken)
    assert stacks.source == "hook"
    assert stacks.stacks[0].frames[0][:3] == ("f", "a.py", 3)
    assert len(stacks.stacks[0].frames) == 1
    assert gauges == HookGauges(ME, 100.0, {"cache": {"entries": 5}})


def test_a_gauge_that_is_read_on_request_only_is_named_in_the_request(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()

    assert observed.clients.ask(ME, "gauges", ("cuda",)) is None
    assert observed.clients.ask(ME, "gauges") is None

    assert hook.asked()["also"] == ["cuda"]
    assert "also" not in hook.asked()


def test_a_hook_that_does_not_answer_in_time_is_silent_until_its_next_frame(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()
    observed.clients.ask(ME, "ping")
    observed.clock.now_s += 0.2
    assert observed.poll() == []

    observed.clock.now_s += 0.1
    (silent,) = observed.poll()
    hook.say(wire.REPLY, {"id": hook.asked()["id"]})
    (ready,) = observed.poll()
    observed.clock.now_s += 10

    assert isinstance(silent, HookStatus)
    assert silent.state == "silent"
    assert "250 ms" in silent.reason
    assert isinstance(ready, HookStatus)
    assert ready.state == "ready"
    assert observed.poll() == []


def test_a_connection_without_a_hello_is_silent(observed: ObservedHooks) -> None:
    observed.hook()
    observed.clients.watch([observed.sample])
    observed.clock.now_s += 0.3

    (status,) = observed.poll()

    assert isinstance(status, HookStatus)
    assert (status.state, "hello" in status.reason) == ("silent", True)


def test_a_detached_hook_is_absent_with_that_reason_from_then_on(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()
    hook.say(wire.GOODBYE, {"reason": "detach"})
    hook.listener.close()
    os.unlink(observed.folder / NAME)

    (status,) = observed.poll()
    observed.clock.now_s += SEARCH_AGAIN_S + 1

    assert status == HookStatus(ME, 100.0, "absent", "it was detached")
    assert observed.look() == []
    assert observed.clients.ask(ME, "ping") == f"There is no hook in process {ME.pid}."


def test_after_a_failed_connection_no_event_is_reported_twice(observed: ObservedHooks) -> None:
    hook = observed.ready()
    hook.say(wire.RECORDS, records(1, 2))
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 50})
    assert len(observed.poll()) == 2
    assert hook.peer is not None
    hook.peer.close()
    (gone,) = observed.poll()
    assert isinstance(gone, HookStatus)
    assert gone.state == "gone"

    observed.clock.now_s += SEARCH_AGAIN_S + 1
    observed.clients.watch([observed.sample])
    hook.accept()
    hook.introduce()
    hook.say(wire.RECORDS, records(1, 2, 3))
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 50})
    hook.say(wire.NOTE, {"kind": "x", "at_ns": 60})
    found = observed.poll()

    assert [type(each) for each in found] == [HookHello, HookStatus, HookSlice, HookNote]
    assert isinstance(found[2], HookSlice)
    assert [event.sequence for event in found[2].events] == [3]


def test_a_kind_of_frame_from_the_future_is_skipped(observed: ObservedHooks) -> None:
    hook = observed.ready()
    hook.say(55, b"\x00\x01")
    hook.say(wire.GAUGES, {"a": 1})

    assert observed.poll() == [HookGauges(ME, 100.0, {"a": 1})]


def test_a_full_queue_of_connections_does_not_block(observed: ObservedHooks) -> None:
    hook = observed.hook()
    hook.listener.listen(0)
    waiting = []
    for _ in range(8):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        waiting.append(client)
        try:
            client.connect(str(observed.folder / NAME))
        except BlockingIOError:
            break
    reason = observed.reason()
    for client in waiting:
        client.close()

    assert "queue is full" in reason


def test_a_hook_that_does_not_read_is_not_waited_for(observed: ObservedHooks) -> None:
    observed.ready()

    answers = {observed.clients.ask(ME, "ping") for _ in range(100)}

    assert answers == {None, f"The hook of process {ME.pid} does not answer."}


def note(number: int, at_ns: int = 0) -> dict[str, Any]:
    return {"kind": "fork", "at_ns": at_ns or 1000 + number, "n": number}


def test_notes_missing_between_received_ones_are_counted(observed: ObservedHooks) -> None:
    hook = observed.ready()
    for number in (0, 1, 5, 6, 9):
        hook.say(wire.NOTE, note(number))

    found = [each for each in observed.poll() if isinstance(each, HookNote)]

    assert [each.lost for each in found] == [0, 0, 3, 3, 5]
    assert found[0].data == {}


def test_a_hook_is_behind_until_what_its_hello_announced_has_arrived(
    observed: ObservedHooks,
) -> None:
    """Until then it is not known what was lost."""
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    hook.introduce(own={"records": 7, "notes": 2})
    observed.poll()
    behind = [observed.clients.is_behind]

    for kind, payload in ((wire.RECORDS, records(5, 6, lost=5)), (wire.NOTE, note(1))):
        hook.say(kind, payload)
        observed.poll()
        behind.append(observed.clients.is_behind)

    assert behind == [True, True, False]


def test_of_two_concurrent_notes_the_later_number_may_have_the_earlier_time(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()
    hook.say(wire.NOTE, note(0, at_ns=2000))
    hook.say(wire.NOTE, note(1, at_ns=1999))

    assert [each.lost for each in observed.poll() if isinstance(each, HookNote)] == [0, 0]


def test_events_received_before_a_connection_broke_are_kept(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()
    hook.say(wire.RECORDS, records(0, 1, 2))
    hook.say(wire.NOTE, note(0))
    assert len(observed.poll()) == 2
    hook.close()
    (observed.folder / NAME).unlink()
    observed.poll()
    observed.clock.now_s += SEARCH_AGAIN_S
    again = observed.ready()
    again.say(wire.RECORDS, records(2, lost=2))
    again.say(wire.RECORDS, records(4, lost=3))
    again.say(wire.NOTE, note(0))
    again.say(wire.NOTE, note(2))

    part, heard = observed.poll()

    assert isinstance(part, HookSlice)
    assert isinstance(heard, HookNote)
    assert ([event.sequence for event in part.events], part.lost) == ([4], 1)
    assert heard.lost == 1


def test_another_hook_in_the_same_process_counts_from_0_again(observed: ObservedHooks) -> None:
    hook = observed.ready()
    hook.say(wire.RECORDS, records(*range(50)))
    hook.say(wire.NOTE, note(7))
    assert len(observed.poll()) == 2
    hook.say(wire.GOODBYE, {"reason": "detach"})
    hook.close()
    (observed.folder / NAME).unlink()
    observed.poll()
    observed.clock.now_s += SEARCH_AGAIN_S
    second = observed.hook()
    observed.clients.watch([observed.sample])
    second.accept()
    second.introduce(since_ns=777)
    second.say(wire.RECORDS, records(0, 1))
    second.say(wire.NOTE, note(0, at_ns=5000))

    hello, _, part, heard = observed.poll()

    assert isinstance(hello, HookHello)
    assert hello.since_ns == 777
    assert isinstance(part, HookSlice)
    assert isinstance(heard, HookNote)
    assert ([event.sequence for event in part.events], part.lost, heard.lost) == ([0, 1], 0, 0)


class AnswersAtOnce(socket.socket):
    """The observer's socket; the answer has arrived and is read before `send` returns."""

    observed: ObservedHooks
    hook: FakeHook
    heard: list[Input]

    def send(self, data: Any, flags: int = 0) -> int:
        sent = super().send(data, flags)
        self.hook.say(wire.REPLY, {"id": self.hook.asked()["id"], "cache": {}})
        self.heard.extend(self.observed.poll())
        return sent


def test_an_answer_that_arrives_before_the_request_is_registered_counts(
    observed: ObservedHooks,
) -> None:
    hook = observed.ready()
    (link,) = observed.clients.links.values()
    quick = AnswersAtOnce(fileno=link.sock.detach())
    quick.observed, quick.hook, quick.heard = observed, hook, []
    quick.setblocking(False)
    link.sock = quick

    assert observed.clients.ask(ME, "gauges") is None
    assert [type(each) for each in quick.heard] == [HookGauges]
    observed.clock.now_s += 10
    assert observed.poll() == []


def test_a_request_that_could_not_be_sent_is_not_waited_for(observed: ObservedHooks) -> None:
    hook = observed.ready()
    (link,) = observed.clients.links.values()
    link.sock.shutdown(socket.SHUT_WR)

    assert "is gone" in str(observed.clients.ask(ME, "gauges"))
    observed.clock.now_s += 10
    assert observed.poll() == []
    hook.close()


def test_processes_of_one_network_share_a_table_of_sockets(tmp_path: Path) -> None:
    network = tmp_path / "network"
    network.touch()
    for pid in ("7", "8", "9"):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "net").mkdir()
        (tmp_path / pid / "net/unix").write_text(f"of {pid}")
    for pid in ("7", "8"):
        (tmp_path / pid / "ns/net").symlink_to(network)
    tables = discovery.SocketTables(str(tmp_path))

    # It cannot be told to which network 9 belongs.
    assert [tables.of(pid) for pid in (7, 8, 9)] == [b"of 7", b"of 7", b"of 9"]


def test_two_threads_that_ask_get_the_answers_to_their_own_requests(
    observed: ObservedHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed.ready()
    (link,) = observed.clients.links.values()
    numbers: list[int] = []

    def send(frame: bytes) -> str | None:
        number = json.loads(frame[wire.FRAME.size :])["id"]
        numbers.append(number)
        if len(numbers) == 1:  # another thread asks before this one goes on
            other = threading.Thread(target=link.ask, args=("gauges", 1.0))
            other.start()
            other.join()
            return "The hook does not read."
        return None

    monkeypatch.setattr(link, "_send", send)
    assert link.ask("stacks", 1.0) is not None

    assert numbers == [1, 2]
    assert link._requests.pending == {2: "gauges"}


def test_a_hook_that_ends_while_half_a_request_is_sent_raises_nothing(
    observed: ObservedHooks,
) -> None:
    observed.ready()
    (link,) = observed.clients.links.values()

    class Ending:
        def send(self, frame: bytes) -> int:
            return 1

        def shutdown(self, how: int) -> None:
            raise OSError(107, "Transport endpoint is not connected")

    sock, link.sock = link.sock, Ending()  # type: ignore[assignment]
    problem = link.ask("stacks", 1.0)
    link.sock = sock

    assert problem is not None
    assert "does not read" in problem
