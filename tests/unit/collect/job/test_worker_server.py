"""Asking the worker server of a process; the answers are those of two gloo ranks of torch 2.13.

Rank 0 was in an all_reduce for which rank 1 was missing, which held the GIL.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mpwatch.collect.job import flight_recorder
from mpwatch.collect.job.flight_recorder import NoAnswer, ask, gauge_of, socket_of
from mpwatch.model.ids import ProcessId

DATA = Path(__file__).parents[3] / "data" / "flight-recorder" / "worker-server"
SELF = ProcessId(os.getpid(), 1)


@contextmanager
def serving(path: Path, answer: bytes, *, closes: bool = True) -> Iterator[list[bytes]]:
    """A server of this process that reads one request and sends an answer."""
    requests: list[bytes] = []
    has_ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # it may have been given up
                requests.append(connection.recv(4096))
                connection.sendall(answer)
                if not closes:
                    has_ended.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield requests
        has_ended.set()
        thread.join(10)


@pytest.mark.parametrize("closes", [True, False])
def test_an_answer_is_read_to_its_end(tmp_path: Path, closes: bool) -> None:
    path = tmp_path / "w.sock"
    with serving(path, (DATA / "rank_0.http").read_bytes(), closes=closes) as requests:
        record = ask(SELF, str(path), 0)

    unfinished = record.groups["0"].unfinished
    assert unfinished is not None
    assert unfinished.words == (
        "collective 2 of group 0 (default_pg): all_reduce of Float [[8]], unfinished"
    )
    assert requests[0].startswith(b"POST /handler/fr_trace_json HTTP/1.1\r\n")


def test_the_record_is_the_gauge_that_a_hook_would_send(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with serving(path, (DATA / "rank_1.http").read_bytes()):
        gauge = gauge_of(ask(SELF, str(path)))

    (state,) = gauge["states"]
    assert state.pop("created_wall_ns") > 0
    assert state == {
        "group": "0",
        "description": "default_pg",
        "operation": "all_reduce",
        "number": 1,
        "sizes": "[[4]]",
        "types": "Float",
        "is_unfinished": False,
    }


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
    ids=range(7),
)
def test_another_answer_is_no_answer(answer: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with serving(path, answer), pytest.raises(NoAnswer):
        ask(SELF, str(path))


def test_an_answer_without_an_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.sock"
    monkeypatch.setattr(flight_recorder, "DEADLINE_S", 0.2)
    with (
        serving(path, b"HTTP/1.1 200 OK\r\n\r\n{", closes=False),
        pytest.raises(NoAnswer, match="TimeoutError"),
    ):
        ask(SELF, str(path))


def test_a_longer_answer_than_any_recorder_has_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.sock"
    monkeypatch.setattr(flight_recorder, "ANSWER_BYTES", 1000)
    with serving(path, b" " * 5000, closes=False), pytest.raises(NoAnswer, match="longer"):
        ask(SELF, str(path))


def test_a_server_of_another_process_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with serving(path, b"") as requests, pytest.raises(NoAnswer, match="another process"):
        ask(ProcessId(os.getppid(), 1), str(path))

    assert b"".join(requests) == b""


def test_a_socket_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="FileNotFoundError"):
        ask(SELF, str(tmp_path / "w.sock"))


@pytest.mark.parametrize(
    ("environment", "addresses", "path"),
    [
        ({}, ["unix listens on /tmp/w.sock", "unix"], "/tmp/w.sock"),
        ({"TORCH_WORKER_SERVER_SOCKET": "/a"}, [], "/a"),
        ({}, ["unix listens on /a", "unix listens on /b"], None),
        ({}, ["tcp listens on *:4000"], None),
        ({}, ["unix listens on /tmp/pymp-x/listener-y"], None),
        ({"TORCH_WORKER_SERVER_SOCKET": "a"}, [], None),
    ],
    ids=range(6),
)
def test_which_socket_is_the_worker_servers(
    environment: dict[str, str], addresses: list[str], path: str | None
) -> None:
    assert socket_of(environment, addresses) == path
