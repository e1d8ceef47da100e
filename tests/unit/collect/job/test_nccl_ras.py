"""Asking NCCL RAS: real sockets that speak its protocol, with answers as NCCL prints them.

Some were recorded from a running NCCL job; see `tests/data/nccl-ras/README.md`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from mpwatch.collect.job import nccl_ras
from mpwatch.collect.job.flight_recorder import NoAnswer
from mpwatch.collect.job.nccl_ras import Listener, NotAnAnswer, ask, find_listener, parse, port_of
from mpwatch.model.collectives import NcclCommunicator, NcclPart, NcclProcess, NcclRemark
from mpwatch.model.ids import ProcessId

DATA = Path(__file__).parents[3] / "data" / "nccl-ras"
SELF = ProcessId(os.getpid(), 1)
HOST, NEXT_HOST, DOC_HOST = "172.16.64.245", "172.16.64.246", "172.16.64.213"


def data(name: str) -> bytes:
    return (DATA / name).read_bytes()


def only(name: str) -> NcclCommunicator:
    """The one communicator of which an answer has something to tell."""
    (communicator,) = parse(data(name)).communicators
    return communicator


# --- answers -------------------------------------------------------------------------------------


def test_a_rank_that_has_launched_fewer_collectives_is_distinguished() -> None:
    assert only("2.30.7-behind.json") == NcclCommunicator(
        name="0xae94423cfbb2ef4a",
        size=4,
        parts=(
            NcclPart("AllReduce", "48121", 3, (0, 1, 2)),
            NcclPart("AllReduce", "48120", 1, (3,)),
        ),
    )


@pytest.mark.parametrize("form", ["json", "txt"])
def test_answers_of_real_ranks_are_read(form: str) -> None:
    found = only(f"2.28.9-behind.{form}")

    assert (found.size, found.remarks) == (2, ())
    assert found.parts == (
        NcclPart("AllReduce", "21", 1, (0,)),
        NcclPart("AllReduce", "20", 1, (1,)),
    )


def test_ranks_that_have_launched_different_collectives_differ_in_one_count() -> None:
    assert {
        (part.what, part.value, part.ranks) for part in only("2.28.9-different.json").parts
    } == {
        ("Broadcast", "0", (0,)),
        ("Broadcast", "1", (1,)),
    }


def test_missing_ranks_are_reported_with_their_processes() -> None:
    assert only("2.29.1-missing.json").remarks == (NcclRemark(1, "unresponsive", 1524345, HOST),)


def test_json_of_the_versions_that_leave_out_a_comma_is_read() -> None:
    assert only("2.28.7-missing.json").remarks == (
        NcclRemark(2, "dead", 302, HOST),
        NcclRemark(3, "unresponsive", 303, NEXT_HOST),
    )


def test_errors_and_status_of_ranks_are_read() -> None:
    found = only("2.30.7-errors.json")

    assert found.remarks == (
        NcclRemark(1, "error", 301, HOST, "Unhandled CUDA error"),
        NcclRemark(2, "error", 302, HOST, "Remote process error"),
        NcclRemark(3, "not-in-it", 303, HOST),
    )
    assert found.parts == (
        NcclPart("status", "RUNNING", 2, (0, 1)),
        NcclPart("status", "ABORT", 1, (2,)),
    )


@pytest.mark.parametrize(("name", "total"), [("2.30.7-equal.json", 1), ("2.26.2-equal.txt", 8)])
def test_of_equal_ranks_there_is_nothing_to_tell(name: str, total: int) -> None:
    answer = parse(data(name))

    assert (answer.total, answer.communicators, answer.processes) == (total, (), ())


def test_text_of_the_first_version_counts_all_collectives_together() -> None:
    found = only("2.24.3-behind.txt")

    assert found.size == 32
    ahead, behind = found.parts
    assert behind == NcclPart("", "6649", 6, (0, 2, 3, 4, 5, 7))
    assert (ahead.value, ahead.size) == ("6650", 26)
    assert set(ahead.ranks) == set(range(32)) - set(behind.ranks)


def test_text_of_the_first_version_names_missing_ranks_and_processes_apart() -> None:
    answer = parse(data("2.24.3-missing.txt"))

    assert answer.version == "2.24.3+cuda12.6"
    assert answer.processes == (NcclProcess(3487984, DOC_HOST, "5", is_dead=False),)
    (found,) = answer.communicators
    assert (found.missing, found.remarks) == (1, (NcclRemark(21, "no-data"),))


def test_text_with_all_that_it_can_tell() -> None:
    answer = parse(data("2.26.2-all.txt"))

    assert answer.processes == (NcclProcess(3487984, DOC_HOST, "5", is_dead=True),)
    (found,) = answer.communicators
    assert found.name == "0xf264af53edbe986"
    assert found.remarks == (
        NcclRemark(21, "dead", 3487984, DOC_HOST),
        NcclRemark(22, "unresponsive", 3487985, DOC_HOST),
        NcclRemark(19, "error", 3487982, DOC_HOST, "Remote process error"),
        NcclRemark(20, "error", 3487983, DOC_HOST, "Remote process error"),
        NcclRemark(23, "error", 3487986, DOC_HOST, "Unhandled CUDA error"),
    )
    others = tuple(sorted(set(range(32)) - {21, 22, 23}))
    assert found.parts == (
        NcclPart("status", "RUNNING", 29, others),
        NcclPart("status", "ABORT", 1, (23,)),
        NcclPart("AllReduce", "48121", 28, tuple(sorted(set(others) - {7}))),
        NcclPart("AllReduce", "48120", 1, (7,)),
        NcclPart("AllReduce", "0", 1, (23,)),
    )


def test_a_list_of_missing_ranks_that_was_cut_is_not_believed() -> None:
    text = data("2.24.3-missing.txt").replace(b"from 1 rank\n", b"from 30 ranks\n")
    text = text.replace(b"The missing rank: 21", b"The missing ranks: 2,3,2")

    (found,) = parse(text).communicators

    assert (found.missing, found.remarks) == (30, ())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b'{"nccl_version": "2.30.7", "communicators": 7}',
        b'{"a": ' + b"[" * 100_000,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"NCCL version 2.24.3 compiled with CUDA 12.6\nJob summary\n",
        b"\xff\xfe\0" * 1000,
    ],
    ids=range(9),
)
def test_what_is_cut_or_of_another_form_is_no_answer(answer: bytes) -> None:
    with pytest.raises(NotAnAnswer):
        parse(answer)


def test_hostile_values_are_left_out_or_cleaned() -> None:
    text = data("2.30.7-errors.json").decode()
    text = text.replace('"rank": 1,', '"rank": "x",').replace('"pid": 302', '"pid": -1')
    text = text.replace('"0xae94423cfbb2ef4a"', '"\\u001b[31mred\\u0007"')
    text = text.replace("48121", "1e400").replace('"size": 4', '"size": {}')

    (found,) = parse(text.encode()).communicators

    assert found.name == "red\ufffd"
    assert found.size is None
    assert found.remarks[0] == NcclRemark(2, "error", None, HOST, "Remote process error")


def test_an_answer_of_megabytes_is_kept_bounded() -> None:
    block = (
        b"#0-%d (%016x) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    )
    ranks = b"".join(
        b"  Rank %d has launched up to operation %d -- [process information not found]\n" % (n, n)
        for n in range(1000)
    )
    text = data("2.26.2-equal.txt") + b"".join(block % (n, n) + ranks for n in range(80))

    found = parse(text).communicators

    assert len(found) == 64
    assert {len(each.parts) for each in found} == {64}


# --- the protocol --------------------------------------------------------------------------------


class Ras:
    """What a process of a job does at its socket; as `rasClientEventLoop` of NCCL."""

    def __init__(self, answer: bytes, *, has_json: bool = True) -> None:
        self.commands: list[bytes] = []
        self._answer = answer
        self._has_json = has_json

    def __call__(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                command = line.rstrip(b"\r\n")
                self.commands.append(command)
                if command == b"VERBOSE STATUS":
                    connection.sendall(self._answer)
                    return
                connection.sendall(self._reply(command) + b"\n")

    def _reply(self, command: bytes) -> bytes:
        if command.startswith(b"CLIENT PROTOCOL "):
            return b"SERVER PROTOCOL 2"
        if command.startswith(b"TIMEOUT ") or (command == b"SET FORMAT json" and self._has_json):
            return b"OK"
        return b"ERROR: Unknown command " + command


@contextmanager
def listening(*servers: Callable[[socket.socket], None]) -> Iterator[Listener]:
    """A socket at which each connection is served by the next of some functions."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            for server in servers:
                connection = stack.enter_context(listener.accept()[0])
                with suppress(OSError):  # it may have been given up
                    server(connection)
                    connection.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Listener(socket.AF_INET, "127.0.0.1", listener.getsockname()[1])
        thread.join(10)


def test_a_version_with_json_is_asked_for_it() -> None:
    ras = Ras(data("2.30.7-behind.json"))
    with listening(ras) as where:
        answer = ask(where)

    assert answer == parse(data("2.30.7-behind.json"))
    assert ras.commands == [
        b"CLIENT PROTOCOL 2", b"TIMEOUT 3", b"SET FORMAT json", b"VERBOSE STATUS"
    ]  # fmt: skip


def test_an_older_version_answers_as_text() -> None:
    with listening(Ras(data("2.26.2-all.txt"), has_json=False)) as where:
        assert ask(where) == parse(data("2.26.2-all.txt"))


def silent(connection: socket.socket) -> None:
    """As the kernel does for a process that is stopped: it is connected, and nothing is read."""
    connection.settimeout(10)
    while connection.recv(4096):
        pass


def test_a_process_that_is_stopped_is_left_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(connection: socket.socket) -> None:
        assert connection.recv(4096)
        # The limit of this attempt is running; the next one may take as long as the machine needs.
        monkeypatch.setattr(nccl_ras, "GREETING_S", 60.0)
        silent(connection)

    monkeypatch.setattr(nccl_ras, "GREETING_S", 0.5)
    with listening(stopped, Ras(data("2.29.1-missing.json"))) as where:
        assert ask(where).version == "2.29.1"


def test_no_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_ras, "GREETING_S", 0.05)
    with listening(*[silent] * 4) as where, pytest.raises(NoAnswer, match="none of 4 connections"):
        ask(where)


def drips(connection: socket.socket) -> None:
    """An answer that never ends, a byte at a time."""
    connection.sendall(b"SERVER PROTOCOL 2\nOK\nOK\n")
    pause = threading.Event()
    while not pause.wait(0.02):
        connection.sendall(b" ")


def test_an_answer_that_is_slow_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_ras, "DEADLINE_S", 0.3)
    with listening(drips) as where, pytest.raises(NoAnswer, match="TimeoutError"):
        ask(where)


def floods(connection: socket.socket) -> None:
    connection.sendall(b"SERVER PROTOCOL 2\nOK\nOK\n")
    while True:
        connection.sendall(b"{" * 65536)


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_ras, "ANSWER_BYTES", 1 << 20)
    with listening(floods) as where, pytest.raises(NoAnswer, match="longer"):
        ask(where)


@pytest.mark.parametrize(
    "greeting",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", b"\n", b"\0" * 100_000, b"SERVER PROTOCOL 2"],
    ids=range(5),
)
def test_another_server_is_told_nothing_more(greeting: bytes) -> None:
    received: list[bytes] = []

    def other(connection: socket.socket) -> None:
        received.append(connection.recv(4096))
        connection.sendall(greeting)

    with listening(other) as where, pytest.raises(NoAnswer):
        ask(where)

    assert received == [b"CLIENT PROTOCOL 2\n"]


def test_a_server_that_ends_meanwhile_is_no_answer() -> None:
    with listening(Ras(b"")) as where, pytest.raises(NoAnswer):
        ask(where)
    with pytest.raises(NoAnswer, match="ConnectionRefusedError"):
        ask(where)


# --- whose socket --------------------------------------------------------------------------------


def test_the_listener_of_a_process_of_the_job_is_found() -> None:
    with listening() as where:
        assert find_listener([ProcessId(1, 1), SELF][::-1], where.port) == where


@pytest.mark.parametrize("host", ["", "::"])
def test_a_listener_at_all_addresses_is_reached_at_localhost(host: str) -> None:
    family = socket.AF_INET6 if host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        found = find_listener([SELF], server.getsockname()[1])

    assert found is not None
    assert found.host == ("::1" if host else "127.0.0.1")


def test_nothing_is_asked_where_any_listener_is_of_another_process(tmp_path: Path) -> None:
    with listening() as where:
        other = fake_proc(tmp_path, has_socket=False)

        assert find_listener([SELF], where.port, str(other)) is None


def fake_proc(folder: Path, *, has_socket: bool) -> Path:
    """A procfs in which this process has no descriptors, or those that it has."""
    for name in (str(SELF.pid), "self"):
        (folder / name).mkdir()
        for part in ("net", "ns"):
            (folder / name / part).symlink_to(f"/proc/self/{part}")
    own = folder / str(SELF.pid) / "fd"
    own.symlink_to("/proc/self/fd") if has_socket else own.mkdir()
    return folder


def test_a_process_with_another_localhost_is_not_asked(tmp_path: Path) -> None:
    with listening() as where:
        proc = fake_proc(tmp_path, has_socket=True)
        assert find_listener([SELF], where.port, str(proc)) == where
        (proc / "self" / "ns").unlink()
        (proc / "self" / "ns").mkdir()
        (proc / "self" / "ns" / "net").touch()

        assert find_listener([SELF], where.port, str(proc)) is None


def test_where_nothing_listens_there_is_no_listener() -> None:
    with listening() as where:
        pass

    assert find_listener([SELF], where.port) is None


@pytest.mark.parametrize(
    ("value", "port"),
    [
        (None, 28028),
        ("localhost:29000", 29000),
        ("[::1]:29000", 29000),
        ("29000", 29000),
        ("localhost", None),
        ("localhost:99999", None),
        ("a\nb:7", 7),
    ],
)
def test_the_port_is_the_one_that_the_variable_names(value: str | None, port: int | None) -> None:
    assert port_of({} if value is None else {"NCCL_RAS_ADDR": value}) == port
