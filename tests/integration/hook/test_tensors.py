from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpwatch.hook
from mpwatch.hook import wire
from tests.conftest import PROGRAMS
from tests.integration.hook.client import Client, wait_for_sockets
from tests.integration.on_demand import IS_SET, ON_DEMAND, cases

pytestmark = pytest.mark.slow
IN_ONE_WORKER = pytest.mark.xdist_group("tensors")

RUN = Path(mpwatch.hook.__file__).parent / "run.py"
METHODS = ("fork", "spawn", "forkserver")


EXCHANGES = tuple(
    f"exchange-{each}"
    for each in ("fork-file_descriptor", "fork-file_system")
    + ("spawn-file_descriptor", "forkserver-file_system") * IS_SET
)
CARRIED = tuple(f"carried-fork-{each}" for each in ("file_descriptor",) + ("file_system",) * IS_SET)
PICKLE, IDENTITY = "pickle-fork-file_descriptor", "identity-fork-file_descriptor"
PARTS = {
    "none": (*EXCHANGES, PICKLE, *CARRIED, IDENTITY),
    "main": (*EXCHANGES, PICKLE, *CARRIED),
    "child": EXCHANGES,
}


@functools.cache
def said(hooks: str) -> dict[str, str]:
    """What the program of tensors says in each of its parts; one run, since each imports torch."""
    command = [sys.executable, str(PROGRAMS / "hook_tensors.py"), hooks, *PARTS[hooks]]
    # To a file: torch_shm_manager keeps a pipe open for seconds after the program has exited.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        output.seek(0)
        text = output.read()
    assert done.returncode == 0, text
    assert text.endswith("end\n")
    parts = re.split(r"^part (\S+)\n", text.removesuffix("end\n"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def waiting() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that wait for a line; killed at the end of the test."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def begin(command: list[str], waiting: list[subprocess.Popen[str]]) -> list[str]:
    """Start a program and read to its line `ready`."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    waiting.append(process)
    lines: list[str] = []
    assert process.stdout is not None
    while (line := process.stdout.readline().strip()) != "ready":
        assert process.poll() is None, lines
        lines.append(line)
    return lines


@pytest.mark.parametrize("method", cases(METHODS, ["fork", "spawn"]))
def test_each_worker_has_the_hook_and_its_tensors_are_followed_to_main(
    method: str, waiting: list[subprocess.Popen[str]], runtime: Path
) -> None:
    program = str(PROGRAMS / "hook_tensors.py")
    command = [sys.executable, program, "main", f"loader-{method}-file_descriptor"]
    begin(command, waiting)
    found = wait_for_sockets(runtime, 3)
    main = waiting[0].pid
    shared: dict[int, set[tuple[int, int, int]]] = {}
    births = {}
    for pid, path in found.items():
        with Client(path) as client:
            hello = client.hello()
            kind = wire.REBUILD if pid == main else wire.SHARE
            records = client.listen_for(kind, 10 if pid == main else 5)
            gauges = client.ask("gauges")
        shared[pid] = {(record[7], record[8], record[6]) for record in records}
        births[pid] = (hello["started_by"], hello["birth"].get("worker_id"))
        if pid == main:
            (loader,) = gauges["loaders"]
        else:
            assert gauges["worker"]["fetched"] == 5
    waiting[0].communicate("\n", timeout=60)

    received = shared.pop(main)
    assert births[main] == ("instrument", None)
    assert sorted(births[pid] for pid in shared) == [(method, 0), (method, 1)]
    assert sorted(loader["pids"]) == sorted(shared)
    assert (loader["batches"], loader["rcvd"], loader["outstanding"]) == (10, 10, 0)
    assert all(keys <= received and len(keys) == 5 for keys in shared.values())
    assert {size for _, _, size in received} == {4 * 300 * 4}
    assert waiting[0].returncode == 0
    assert list((runtime / "mpwatch").iterdir()) == []


@IN_ONE_WORKER
@pytest.mark.parametrize(
    ("method", "strategy"),
    [
        ("fork", "file_descriptor"),
        ("fork", "file_system"),
        pytest.param("spawn", "file_descriptor", marks=ON_DEMAND),
        pytest.param("forkserver", "file_system", marks=ON_DEMAND),
    ],
)
def test_processes_with_and_without_a_hook_exchange_tensors_unchanged(
    method: str, strategy: str
) -> None:
    part = f"exchange-{method}-{strategy}"

    assert "exit 0" in said("none")[part]
    assert said("main")[part] == said("child")[part] == said("none")[part]


@IN_ONE_WORKER
def test_pickles_name_torch_and_never_the_hook() -> None:
    with_hook = said("main")[PICKLE]

    assert with_hook == said("none")[PICKLE]
    assert with_hook.splitlines()[0] == "False True True"


@IN_ONE_WORKER
def test_uninstrument_puts_every_object_of_torch_back() -> None:
    assert said("none")[IDENTITY].splitlines()[:2] == ["changed True", "left 0 True"]


@IN_ONE_WORKER
@pytest.mark.parametrize("strategy", cases(["file_descriptor", "file_system"], ["file_descriptor"]))
def test_a_pickle_made_with_the_hook_loads_where_mpwatch_was_never_installed(
    strategy: str,
) -> None:
    part = f"carried-fork-{strategy}"

    assert said("main")[part] == said("none")[part]
    assert said("main")[part].startswith("tensor([1., 1., 1.]) Tensor True\n")
    assert "hook False" in said("main")[part]


@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_cannot_import_mpwatch_has_the_hook_and_an_unchanged_path(
    method: str, waiting: list[subprocess.Popen[str]], runtime: Path
) -> None:
    command = [sys.executable, "-S", str(RUN), str(PROGRAMS / "hook_children.py"), method]
    lines = begin(command, waiting)
    found = wait_for_sockets(runtime, 2)
    started_by = {}
    for pid, path in found.items():
        with Client(path) as client:
            started_by[pid == waiting[0].pid] = client.hello()["started_by"]
    rest, _ = waiting[0].communicate("\n", timeout=60)

    assert lines == ["child None [] True"]
    assert started_by == {True: "run", False: method}
    assert (rest, waiting[0].returncode) == ("exit 0\n", 0)
    assert os.listdir(runtime / "mpwatch") == []


@pytest.mark.parametrize("method", cases(["fork", "spawn"], ["fork"]))
def test_shared_memory_is_known_by_the_line_that_made_it(
    method: str, waiting: list[subprocess.Popen[str]], runtime: Path
) -> None:
    program = PROGRAMS / "hook_call_sites.py"
    text = program.read_text().splitlines()
    begin([sys.executable, str(program), method], waiting)
    sites = set()
    for path in wait_for_sockets(runtime, 3).values():
        with Client(path) as client:
            client.hello()
            client.listen_for(wire.SHARE, 1)
            client.ask("ping")
            sites |= {note["site"] for note in client.notes if note["kind"] == "call-site"}
    waiting[0].communicate("\n", timeout=60)

    def line(words: str) -> int:
        return next(number for number, each in enumerate(text, 1) if words in each)

    assert sites == {
        f"hook_call_sites.py:{line('share_memory_()')}",
        f"hook_call_sites.py:{line('# the line')}",
        f"hook_call_sites.py:{line('def __getitem__')} Noise.__getitem__",
    }
