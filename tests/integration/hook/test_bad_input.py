"""Full disks, little memory, observers that misbehave; each with a real process."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.collect.hook.decode import read_ring
from mpwatch.hook import wire
from mpwatch.hook.transport.server import CONNECTIONS
from tests import procfs
from tests.integration.hook.client import Client, ring_records, wait_for_sockets
from tests.integration.hook.guest import Guest

pytestmark = pytest.mark.slow

may_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


@pytest.fixture
def disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A file system in memory, mounted with the options of the test."""
    folder = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", request.param, "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@may_mount
@pytest.mark.parametrize("disk", ["size=64k,mode=700"], indirect=True)
def test_on_a_full_disk_the_hook_works_without_its_file_and_reports_it(disk: Path) -> None:
    with Guest("listen", XDG_RUNTIME_DIR=str(disk)) as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(disk, 1)[guest.process.pid]) as client:
            hello = client.hello()
            guest.tell("20")
            records = client.listen_for(wire.QUEUE_PUT, 20)
        guest.tell("end")
        assert guest.finish() == (0, "wrote\n")

    assert hello["ring_inode"] is not None
    assert hello["problems"] == [
        "ring: No space left on device",
        "copy of the ring: No space left on device",
    ]
    assert len(records) == 20
    assert list((disk / "mpwatch").iterdir()) == []


@may_mount
@pytest.mark.parametrize("disk", ["ro,mode=700"], indirect=True)
def test_a_read_only_runtime_directory_is_reported_and_the_next_one_used(disk: Path) -> None:
    with Guest("nowhere", XDG_RUNTIME_DIR=str(disk)) as guest:
        lines = guest.finish()[1].splitlines()

    assert lines[1] == f"problems {disk}/mpwatch: Read-only file system"
    assert lines[0].startswith(f"got 1 2 /tmp/mpwatch-{os.geteuid()}/")


@may_mount
@pytest.mark.parametrize("disk", ["ro,mode=700"], indirect=True)
def test_without_a_runtime_directory_the_program_runs_as_without_the_hook(disk: Path) -> None:
    fallback = f"/tmp/mpwatch-{os.geteuid()}"
    script = f'mkdir -p {fallback} && mount --bind "$XDG_RUNTIME_DIR" {fallback} && exec "$@"'
    hide = ["unshare", "-m", "sh", "-c", script, "sh"]
    with Guest("nowhere", within=hide, XDG_RUNTIME_DIR=str(disk)) as guest:
        code, said = guest.finish()

    assert code == 0
    assert said.splitlines()[0] == "got 1 2 None"
    assert said.count("Read-only file system") == said.count("is not writable") == 1
    assert said.splitlines()[-1] == "forked 0"


def test_an_overwritten_ring_is_reported_by_the_observer_and_harmless_to_the_process(
    runtime_in_memory: Path,
) -> None:
    with Guest("listen") as guest:
        guest.hear()
        guest.tell("100")
        guest.hear()
        (ring,) = (runtime_in_memory / "mpwatch").glob("*.ring")
        ring.chmod(0o600)
        with open(ring, "r+b") as file:
            file.seek(wire.HEADER_BYTES)
            file.write(random.Random(5).randbytes(wire.DEFAULT_SLOTS * wire.RECORD_BYTES))
        with Client(wait_for_sockets(runtime_in_memory, 1)[guest.process.pid]) as client:
            client.hello()
            guest.tell("30")
            guest.hear()
            assert client.ask("ping")["at_ns"] > 0
        reading = read_ring(str(ring))
        guest.tell("end")
        assert guest.finish() == (0, "")

    assert [event.sequence for event in reading.events][-30:] == list(range(100, 130))
    assert len(reading.problems) == 1


def test_data_that_an_observer_does_not_read_is_not_kept(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        guest.tell(str(2 * wire.DEFAULT_SLOTS))
        guest.hear()
        deaf = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for one in deaf:
            one.connect(str(path))
        with Client(path) as client:
            client.hello()
            client.ask("ping")
            before_kib = procfs.resident_kib(guest.process.pid)
            for _ in range(10):
                guest.tell("20000")
                guest.hear()
                client.ask("ping")
            grown_kib = procfs.resident_kib(guest.process.pid) - before_kib
        for one in deaf:
            one.close()
        guest.tell("end")
        assert guest.finish() == (0, "")

    # 12 MiB were written, and would be kept once for each observer.
    assert grown_kib < 4096


def test_more_observers_than_allowed_wait_until_one_disconnects(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        inside = [Client(path) for _ in range(CONNECTIONS)]
        for client in inside:
            client.hello()
        with Client(path, timeout_s=0.5) as outside:
            with pytest.raises(TimeoutError):
                outside.frame()
            inside.pop().close()
            outside.sock.settimeout(30)
            assert outside.hello()["pid"] == guest.process.pid
        for client in inside:
            client.close()
        guest.tell("end")
        assert guest.finish() == (0, "")


INTRUDER = """
import os, socket, sys
os.setuid(12345)
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.settimeout(30)
try:
    print("told", len(door.recv(65536)))
except ConnectionResetError:
    print("told", 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_another_user_gets_no_data_even_if_the_socket_is_open_to_all() -> None:
    with tempfile.TemporaryDirectory() as name, Guest("listen", XDG_RUNTIME_DIR=name) as guest:
        guest.hear()
        path = wait_for_sockets(Path(name), 1)[guest.process.pid]
        for each in (path.parent.parent, path.parent, path):
            each.chmod(0o777)
        said = subprocess.run(
            [sys.executable, "-c", INTRUDER, str(path)], capture_output=True, text=True, check=False
        )
        guest.tell("end")
        assert guest.finish() == (0, "")

    assert (said.stdout, said.stderr) == ("told 0\n", "")


def test_forks_while_memory_is_short_mix_no_records_and_end_well(runtime_in_memory: Path) -> None:
    with Guest("memory") as guest:
        assert guest.hear() == "codes [0]"
        assert guest.hear() == "ready"
        stem = f"{guest.process.pid}-"
        (ring,) = (runtime_in_memory / "mpwatch").glob(f"{stem}*.ring")
        kinds = {record[2] for record in ring_records(ring)}
        with Client(wait_for_sockets(runtime_in_memory, 1)[guest.process.pid]) as client:
            assert client.hello()["pid"] == guest.process.pid
        guest.tell("")
        assert guest.finish() == (0, "")

    assert kinds == {wire.FORKED}


def test_a_thread_without_memory_for_its_first_call_waits_for_it_and_prints_nothing(
    runtime: Path,
) -> None:
    with Guest("starved") as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            assert client.hello()["pid"] == guest.process.pid
        guest.tell("")
        assert guest.finish() == (0, "")
    assert list((runtime / "mpwatch").glob("*.sock")) == []


def test_functions_replaced_while_the_hook_is_attached_are_not_used_at_a_fork_nor_after(
    runtime: Path,
) -> None:
    with Guest("mocked_late") as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            assert client.ask("gauges")["own"]["records"] == 1
        guest.tell("")
        assert guest.finish() == (0, "code 0 0 []\n")
