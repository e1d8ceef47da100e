from __future__ import annotations

import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from mpwatch.collect.hook import client
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire
from tests.integration.hook.client import Client, ring_records, sockets, wait_for_sockets
from tests.integration.hook.guest import Guest
from tests.procfs import eventually

pytestmark = pytest.mark.slow


def wait_ms(duration_ms: int) -> None:
    """Wait: how long a check of the ring file holds depends on the clock."""
    end_ns = time.monotonic_ns() + duration_ms * 1_000_000
    while time.monotonic_ns() < end_ns:
        continue


def test_a_hook_without_an_observer_has_two_descriptors_and_one_hidden_thread() -> None:
    with Guest("cost") as guest:
        code, said = guest.finish()

    assert (code, said.splitlines()) == (
        0,
        [
            f"fds {1 if sys.version_info >= (3, 13) else 2}",
            "threads 1 1",
            "inheritable []",
            "shm False",
        ],
    )


@pytest.mark.parametrize("mode", ["weight", "weight_under_run", "weight_injected"])
def test_with_its_ring_and_notes_full_the_hook_takes_less_than_a_mebibyte(mode: str) -> None:
    with Guest(mode) as guest:
        if mode == "weight_injected":
            assert guest.hear() == "ready"
            assert inject(stat_of(guest.process.pid).process, timeout_s=60).state == "ready"
            guest.tell("go on")
        code, said = guest.finish()

    assert code == 0
    assert 300_000 < int(said.split()[1]) < 1 << 20


def test_an_interpreter_without_the_gil_does_not_get_the_hook() -> None:
    text = (
        "import os, sys; sys._is_gil_enabled = lambda: False; import mpwatch;"
        " before = os.listdir('/proc/self/task'), os.listdir('/proc/self/fd');"
        " print(mpwatch.instrument());"
        " print(before == (os.listdir('/proc/self/task'), os.listdir('/proc/self/fd')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


@pytest.mark.parametrize("missing", ["ctypes", "zlib"])
def test_a_python_that_was_built_without_optional_modules_gets_the_hook(missing: str) -> None:
    text = (
        f"import os, sys; sys.modules[{missing!r}] = None; import mpwatch;"
        " print(mpwatch.instrument()); child = os.fork(); child or os._exit(0);"
        " os.waitpid(child, 0); print(mpwatch.uninstrument())"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")


def test_attaching_collects_no_garbage_and_keeps_the_setting_of_gc(tmp_path: Path) -> None:
    text = (
        "import gc, mpwatch; seen = [];"
        " gc.callbacks.append(lambda phase, info: seen.append(info['generation']));"
        " gc.set_threshold(700, 1, 1); print(mpwatch.instrument(), len(seen) <= 6, gc.isenabled());"
        " mpwatch.uninstrument(); gc.disable(); print(mpwatch.instrument(), gc.isenabled())"
    )
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    # Compiling a module allocates as much as the hook: the first run leaves compiled modules.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=env,
        )
    # The postponed collection happens once, with one start and one stop; fourteen were seen once.
    assert (done.stdout, done.stderr) == ("True True True\nTrue False\n", "")


def test_attaching_imports_neither_torch_nor_the_patched_modules() -> None:
    watched = ("torch", "numpy", "multiprocessing", "socket", "subprocess", "logging")
    text = (
        "import sys, mpwatch; assert mpwatch.instrument();"
        f" print(*({{name.partition('.')[0] for name in [*sys.modules]}} & {{*{watched}}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )

    assert (done.stdout, done.stderr) == ("\n", "")


def test_no_descriptor_of_a_connected_hook_survives_an_exec(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        folder = Path(f"/proc/{guest.process.pid}/fdinfo")
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            client.ask("ping")
            flags = {path.name: path.read_text() for path in folder.iterdir()}
        guest.tell("end")
        assert guest.finish() == (0, "")

    closed = {
        fd
        for fd, text in flags.items()
        if int(text.partition("flags:")[2].split()[0], 8) & os.O_CLOEXEC
    }
    assert flags.keys() - closed == {"0", "1", "2"}
    assert len(closed) >= 2


def test_uninstrument_restores_every_object_and_closes_everything() -> None:
    with Guest("identity") as guest:
        code, said = guest.finish()

    assert (code, said.splitlines()) == (
        0,
        ["changed True", "left 0", "path True", "fds True", "tasks 0"],
    )


def test_exceptions_of_signal_handlers_reach_the_program_at_any_point() -> None:
    with Guest("signals") as guest:
        code, said = guest.finish()

    assert (code, said) == (0, "caught 120 of 120\n")


def test_records_and_answers_reach_an_observer(runtime: Path) -> None:
    with Guest("listen") as guest:
        assert guest.hear() == "ready"
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with Client(path) as client:
            hello = client.hello()
            guest.tell("20")
            records = client.listen_for(wire.QUEUE_PUT, 20)
            threads = client.ask("stacks")["threads"]
            gauges = client.ask("gauges")
            unknown = client.ask("everything")
        guest.tell("end")
        code, rest = guest.finish()

    assert hello["pid"] == guest.process.pid
    assert path.name == wire.stem(hello["pid"], hello["start_ticks"]) + wire.SOCKET_SUFFIX
    assert (hello["started_by"], hello["torch"], hello["missing"]) == ("instrument", None, {})
    assert [record[0] for record in records] == list(range(1, 21))
    assert {record[4] for record in records} == {guest.process.pid}
    assert [thread["name"] for thread in threads] == ["MainThread"]
    assert threads[0]["frames"][0][0] == "listen"
    assert gauges["own"]["records"] == 20
    assert 0 < gauges["own"]["wrapper_ns"] < 1_000_000
    assert unknown["error"].startswith("unknown request 'everything'")
    assert (code, rest) == (0, "wrote\n")
    assert list((runtime / "mpwatch").iterdir()) == []


def test_what_an_observer_missed_is_counted(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        guest.tell(str(wire.DEFAULT_SLOTS + 100))
        guest.hear()
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            records = client.listen_for(wire.QUEUE_PUT, wire.DEFAULT_SLOTS)

    assert client.lost == 100
    assert [record[0] for record in records] == list(range(101, wire.DEFAULT_SLOTS + 101))


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSEGV])
def test_the_last_records_outlive_a_killed_process(
    way: signal.Signals, runtime_in_memory: Path
) -> None:
    with Guest("listen") as guest:
        guest.hear()
        guest.tell("3")
        guest.hear()
        guest.process.send_signal(way)
        guest.finish()

    (ring,) = (runtime_in_memory / "mpwatch").glob("*.ring")
    assert [record[2] for record in ring_records(ring)] == [wire.QUEUE_PUT] * 3
    assert wire.HEADER.unpack_from(ring.read_bytes())[5] == guest.process.pid


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<IB", 0xFFFFFFFF, wire.REQUEST),
        wire.pack_frame(wire.REQUEST, b"{not json"),
        wire.pack_frame(wire.REQUEST, b"[1]"),
        wire.pack_frame(wire.HELLO, b"{}"),
    ],
)
def test_garbage_ends_the_connection_and_nothing_else(garbage: bytes, runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        with Client(path) as rude:
            rude.hello()
            rude.sock.sendall(garbage)
            with pytest.raises((EOFError, ConnectionResetError)):
                rude.read_to_the_end()
        with Client(path) as polite:
            polite.hello()
            assert polite.ask("ping")["at_ns"] > 0
        guest.tell("end")
        assert guest.finish() == (0, "")


def test_a_thousand_connections_and_observers_that_never_read_do_no_harm(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        deaf = socket.socket(socket.AF_UNIX)
        deaf.connect(str(path))
        for _ in range(1000):
            with socket.socket(socket.AF_UNIX) as hasty:
                hasty.connect(str(path))
        guest.tell("200000")
        assert guest.hear() == "wrote"
        with Client(path) as client:
            client.hello()
            assert client.ask("ping")["at_ns"] > 0
        deaf.close()
        guest.tell("end")
        assert guest.finish() == (0, "")


def test_detach_answers_and_removes_everything(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            assert client.ask("detach")["detached"] is True
            with pytest.raises(EOFError):
                client.read_to_the_end()
        assert client.last == (wire.GOODBYE, b'{"reason": "detach"}')
        assert list((runtime / "mpwatch").iterdir()) == []
        guest.tell("5")
        assert guest.hear() == "wrote"
        guest.tell("end")
        assert guest.finish() == (0, "")


def test_the_file_of_a_ring_is_closed_to_writers(runtime_in_memory: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        (ring,) = (runtime_in_memory / "mpwatch").glob("*.ring")
        assert stat.S_IMODE(ring.stat().st_mode) == 0o400
        guest.tell("end")
        assert guest.finish() == (0, "")


def test_on_a_disk_an_observer_receives_the_ring_and_reads_all_of_it_after_a_kill(
    runtime: Path,
) -> None:
    with Guest("listen") as guest:
        guest.hear()
        pid = guest.process.pid
        path = wait_for_sockets(runtime, 1)[pid]
        with socket.socket(socket.AF_UNIX) as observer:
            observer.connect(str(path))
            data, fd = client.receive(observer, 1 << 16)
            assert fd is not None
            hello = json.loads(data[wire.FRAME.size :][: wire.FRAME.unpack_from(data)[0]])
            ring = client.RingMemory(fd)
            guest.tell("3")
            guest.hear()
            guest.process.kill()
            guest.finish()
        found = ring.read()
        assert ring.is_ring(hello["ring_inode"])
        assert not ring.is_ring(hello["ring_inode"] + 1)
        ring.close()

    assert hello["ring"] == str(path.with_suffix(wire.RING_SUFFIX))
    assert [event.kind for event in found.events] == [wire.QUEUE_PUT] * 3
    assert found.header is not None
    assert (found.header.pid_inside, found.header.copied_ns) == (pid, 0)


def test_without_free_descriptors_a_program_forks_and_the_hook_answers_once_there_are_some(
    runtime: Path,
) -> None:
    with Guest("limits") as guest:
        guest.hear()
        path = wait_for_sockets(runtime, 1)[guest.process.pid]
        with Client(path) as client:
            client.hello()  # it listens before there is no descriptor left
        guest.tell("")
        assert [guest.hear(), guest.hear()] == ["full", "forked"]
        with socket.socket(socket.AF_UNIX) as early:
            # On a slow machine the thread that listens again starts after the last fork.
            assert eventually(lambda: early.connect_ex(str(path)) == 0)
            guest.tell("")
            assert guest.hear() == "room"
            with Client(path) as client:
                assert client.hello()["pid"] == guest.process.pid
        guest.tell("")
        assert guest.finish() == (0, "")


def test_replaced_clocks_sockets_and_threads_are_not_used(runtime: Path) -> None:
    with Guest("mocked") as guest:
        assert guest.hear() == "ready"
        with Client(wait_for_sockets(runtime, 1)[guest.process.pid]) as client:
            client.hello()
            guest.tell("2")
            records = client.listen_for(wire.QUEUE_PUT, 2)
        guest.tell("end")
        assert guest.finish() == (0, "wrote\n")

    assert all(record[1] > 1_000_000 for record in records)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "No such file"),
        ("symlink", "is a symbolic link"),
        ("file", "is not a directory"),
        pytest.param(
            "foreign",
            "belongs to user 12345",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away"),
        ),
        ("long", "is too long for the path of a socket"),
    ],
)
def test_an_unusable_runtime_directory_is_reported_and_the_next_one_used(
    kind: str, reason: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("d")
    folder = tmp_path / ("x" * 90 if kind == "long" else "run")
    if kind != "missing":
        folder.mkdir()
    if kind == "symlink":
        (tmp_path / "elsewhere").mkdir()
        (folder / "mpwatch").symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        (folder / "mpwatch").write_text("")
    elif kind == "foreign":
        (folder / "mpwatch").mkdir()
        os.chown(folder / "mpwatch", 12345, 12345)
    with Guest("listen", XDG_RUNTIME_DIR=str(folder)) as guest:
        assert guest.hear() == "ready"
        fallback = Path(f"/tmp/mpwatch-{os.getuid()}")
        found: list[Path] = []

        def is_open() -> bool:
            found[:] = fallback.glob(f"{guest.process.pid}-*.sock")
            return bool(found)

        assert eventually(is_open)
        with Client(found[0]) as client:
            hello = client.hello()
        guest.tell("end")
        assert guest.finish() == (0, "")

    assert hello["ring"] is not None
    assert len(hello["problems"]) == 1
    assert reason in hello["problems"][0]


def test_an_exit_without_cleanup_prints_nothing_and_leaves_what_an_autopsy_reads(
    runtime: Path,
) -> None:
    with Guest("listen") as guest:
        guest.hear()
        guest.tell("leave")
        assert guest.finish() == (0, "")

    assert {path.suffix for path in (runtime / "mpwatch").iterdir()} == {".ring", ".notes"}


def test_the_next_hook_removes_the_socket_of_a_killed_process(runtime: Path) -> None:
    with Guest("listen") as guest:
        guest.hear()
        wait_for_sockets(runtime, 1)
        guest.process.kill()
        assert guest.finish() == (-signal.SIGKILL, "")
        assert sockets(runtime)
    with Guest("listen") as after:
        after.hear()
        path = runtime / "mpwatch"
        with Client(wait_for_sockets(runtime, 1)[after.process.pid]) as client:
            client.hello()
            client.ask("ping")
        left = {
            each.name for each in path.iterdir() if each.name.startswith(f"{guest.process.pid}-")
        }
        after.tell("end")
        after.finish()

    assert {Path(name).suffix for name in left} == {".ring"}
