"""Asks the worker server of a process for what torch's flight recorder holds.

A program that uses `worker_main` of `torch.distributed.elastic.control_plane`, or makes a
`_WorkerServer` itself, has an HTTP server in threads of C++ that answers while another thread holds
the GIL (torch 2.13: `WorkerServer.cpp`, threads `pt_workerserver`). Its handler `fr_trace_json`
returns the recorder of gloo; that of NCCL is another one and is not asked, as it asks CUDA for the
state of events and may so wait for a kernel that does not end. Only a server that listens on a Unix
socket is asked: there the kernel says which process it is, before anything is sent.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

from mpwatch.collect.job.recorder_dumps import record_of
from mpwatch.model.collectives import RankRecord, Recorded
from mpwatch.model.ids import ProcessId

THREAD = "pt_workerserver"
"""Name of the threads of a process with such a server."""
VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
DEADLINE_S = 2.0
"""For a whole answer; one with 2000 collectives was made in 50 ms."""
ANSWER_BYTES = 8 << 20
"""Longest answer of a process of the job, also of NCCL RAS: its JSON takes about 600 bytes for each
rank of each communicator, its text much less."""
_HEAD_BYTES = 64 << 10
_REQUEST = (
    b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_LISTENS = "unix listens on "
_OTHER_SERVERS = ("pymp-", "mpwatch", "listener-")
"""In paths of sockets of multiprocessing and of the hook, which do not speak HTTP."""


class NoAnswer(OSError):
    """The server cannot be reached, or answers something else."""


def socket_of(environment: Mapping[str, str], addresses: Iterable[str]) -> str | None:
    """The path of the Unix socket of a process with a worker server; `None` if it is not known.

    Args:
        environment: Of the process, as it was started.
        addresses: What is known of its sockets: `unix listens on /tmp/a`.
    """
    named = environment.get(VARIABLE, "")
    if named.startswith("/"):
        return named
    paths = {
        address.removeprefix(_LISTENS)
        for address in addresses
        if address.startswith(_LISTENS + "/")
        and not any(part in address for part in _OTHER_SERVERS)
    }
    return paths.pop() if len(paths) == 1 else None


def ask(process: ProcessId, path: str, rank: int = 0, proc: str = "/proc") -> RankRecord:
    """What the flight recorder of a process holds.

    Args:
        process: The process; a server of another one that listens there is not asked.
        path: Of its socket, as the process sees it.
        rank: The number of the rank, for the result.
        proc: Where procfs is mounted.

    Raises:
        NoAnswer: It does not answer in time, or not in the form that is known.
    """
    try:
        document = json.loads(_body(_answer(process, path, proc)))
    except (OSError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from None
    if not isinstance(document, dict):
        raise NoAnswer("it is no object")
    return record_of(document, rank, path, time.time())


def gauge_of(record: RankRecord) -> dict[str, Any]:
    """The record as the gauge `collectives` of a hook: see `hook.wire`."""
    groups = {
        group.name: {"size": len(group.ranks), "ranks": ", ".join(map(str, group.ranks))}
        for group in record.groups.values()
        if group.ranks is not None
    }
    calls = (group.unfinished or group.newest for group in record.groups.values())
    return {"groups": groups, "states": [_state(call) for call in calls if call is not None]}


def _state(call: Recorded) -> dict[str, Any]:
    return {
        "group": call.group,
        "description": call.description,
        "operation": call.operation,
        "number": call.number,
        "sizes": call.sizes,
        "types": call.types,
        "is_unfinished": call.is_unfinished,
        "created_wall_ns": call.created_wall_ns,
    }


def _answer(process: ProcessId, path: str, proc: str) -> bytes:
    """All that the server sends, within the limits of bytes and time."""
    end_s = time.monotonic() + DEADLINE_S
    root = f"{proc}/{process.pid}/root"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(DEADLINE_S)
        # The process may see other files than this one; the path of a socket has 107 bytes.
        is_same = os.path.samefile(root, "/") if os.path.exists(root) else True
        connection.connect(path if is_same else f"{root}{path}")
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", raw)[0] != process.pid:
            raise NoAnswer("another process listens there")
        connection.sendall(_REQUEST)
        answer = bytearray()
        while len(answer) < ANSWER_BYTES:
            connection.settimeout(max(0.001, end_s - time.monotonic()))
            part = connection.recv(1 << 16)
            if not part:
                return bytes(answer)
            answer += part
            if _is_whole(answer):
                return bytes(answer)
    raise NoAnswer(f"its answer is longer than {ANSWER_BYTES >> 20} MB")


def _is_whole(answer: bytearray) -> bool:
    """Whether the answer has as many bytes as its head says."""
    head, end, _ = answer[:_HEAD_BYTES].partition(b"\r\n\r\n")
    size = _size(bytes(head)) if end else None
    return size is not None and len(answer) >= len(head) + len(end) + size


def _size(head: bytes) -> int | None:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return int(value.strip()[:12])
    return None


def _body(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
        raise NoAnswer("its answer is no success of HTTP/1")
    return body
