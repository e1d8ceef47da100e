"""Programs under test: started, awaited by what they print, and ended with their children."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest

from mpwatch.collect.host import ptrace_access
from tests.skipped import summary

TESTS = Path(__file__).parent
PROGRAMS = TESTS / "programs"
NO_TESTS = {"programs", "benchmarks", "data"}
"""Folders in which pytest looks for none, see `norecursedirs`."""
READY_S = 120.0
"""Long enough for torch to be imported on a machine that does other things as well."""


# A shell that runs tests in the background has them ignore ctrl-C, and with them all they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes depends on what else the machine does.
hypothesis.settings.register_profile("mpwatch", deadline=None)
hypothesis.settings.load_profile("mpwatch")

# Hundreds of programs load the hook: compiling it takes 0.15 s of cpu each time, loading it 0.05 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# With `-n 0`, pytest itself: rewriting the assertions of all tests takes 13 s of cpu.
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True, scope="session")
def _own_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests out of the user's log and configuration, and the user's settings out of tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture(autouse=True, scope="module")
def _modules_of_tests_are_not_garbage_collected() -> None:
    """Exempt the objects of all modules of tests from collections, which they would slow down.

    Once per run, and again after tests that call `mpwatch.cli.main`, which ends the exemption: then
    all of them are in the oldest generation again. (`gc.get_freeze_count` takes 40 ms to count.)
    """
    if len(gc.get_objects(generation=2)) > 50_000:
        gc.collect()
        gc.freeze()


def pytest_collection(session: pytest.Session) -> None:
    """In a worker of xdist that collects all tests, load a part of their modules before the others.

    Where no module is compiled yet, as on a clean machine, all workers would come to each of them
    at the same time, and each would rewrite all assertions.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or list(map(os.path.abspath, session.config.args)) != [str(TESTS)]:
        return
    modules = sorted(TESTS.rglob("test_*.py"))
    for path in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if not NO_TESTS.intersection(path.relative_to(TESTS).parts):
            # What is wrong with it is reported when it is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line at the end of a run how many tests were skipped, and what they need."""
    reports = terminalreporter.stats.get("skipped", [])
    line = summary(str(report.longrepr[2]) for report in reports)
    if line:
        terminalreporter.write_line(line)


class Program:
    """A real program of a test, with the lines it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._rest = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_for(self, word: str, deadline_s: float = READY_S) -> str:
        """Wait for a line that starts with a word and return it; fail with all output if not."""
        end_s = time.monotonic() + deadline_s
        seen = 0
        while True:
            for line in self.lines[seen:]:
                seen += 1
                if line.startswith(word):
                    return line
            if not self._read(end_s):
                heard = "\n".join(self.lines)
                pytest.fail(f"no line {word!r} within {deadline_s:.0f} s; it printed:\n{heard}")

    def wait(self, deadline_s: float = READY_S) -> int:
        """Wait for its end, reading all it prints; return its exit code (negative: a signal)."""
        end_s = time.monotonic() + deadline_s
        while self._read(end_s):
            continue
        return self.process.wait(max(0.1, end_s - time.monotonic()))

    def _read(self, end_s: float) -> bool:
        stream = self.process.stdout
        assert stream is not None
        ready, _, _ = select.select([stream], [], [], max(0.0, end_s - time.monotonic()))
        if not ready:
            return False
        data = os.read(stream.fileno(), 65536)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines.extend(line.decode("utf-8", "replace") for line in lines)
        return True

    def end(self) -> None:
        """Kill it with everything it started."""
        kill_group(self.process.pid)
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


def kill_group(leader: int) -> None:
    """Kill a process group whose leader was not waited for yet, with all descendants of it.

    A launcher starts each rank in a session of its own. Resource trackers are spared: they end by
    themselves and remove the semaphores. torch_shm_manager is killed too, so that the named
    segments that it would remove are removed here.
    """
    killed = _group(leader)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for segment in Path("/dev/shm").glob("torch_*"):
        if segment.name.split("_")[1] in map(str, killed):
            segment.unlink(missing_ok=True)


def _group(leader: int) -> list[int]:
    """The processes of a process group and their descendants, without resource trackers."""
    members, children = {leader}, defaultdict[int, list[int]](list)
    trackers = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if b"resource_tracker" in Path(f"/proc/{name}/cmdline").read_bytes():
                trackers.add(int(name))
            children[int(fields[1])].append(int(name))
            if int(fields[2]) == leader:
                members.add(int(name))
    above = [*members]
    while above:
        below = [each for each in children[above.pop()] if each not in members]
        members.update(below)
        above += below
    return sorted(members - trackers)


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs: `start("loader.py", "--workers", "2")` or `start(["python", ...])`."""
    running: list[Program] = []

    def run(what: str | list[str], *arguments: str, env: dict[str, str] | None = None) -> Program:
        command = what if isinstance(what, list) else [sys.executable, str(PROGRAMS / what)]
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            start_new_session=True,
        )
        running.append(Program(process))
        return running[-1]

    yield run
    for program in running:
        program.end()


@pytest.fixture
def ptrace_allowed() -> None:
    """Skip the test where this process may not trace its own children."""
    if not ptrace_access.check(os.getpid()).is_allowed:
        pytest.skip("this machine forbids ptrace")


def free_port() -> int:
    """A port of this machine on which no process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Directories:
    """Directories whose paths are short enough for sockets below them.

    The path of a socket has at most 107 bytes. pytest's own directories have the names of the test
    and of the user who runs it in theirs.
    """

    def __init__(self, folder: str) -> None:
        self._paths = (Path(folder) / str(number) for number in itertools.count())
        self._unused: Path | None = None

    def new(self) -> Path:
        """A new directory."""
        path = next(self._paths)
        path.mkdir(mode=0o700)
        return path

    def empty(self) -> Path:
        """A directory that may be that of an earlier test which has not used it.

        A new one for each test would double the time of the fast ones' last seconds, in which all
        are removed.
        """
        if self._unused is None or not _is_new(self._unused):
            self._unused = self.new()
        return self._unused


def _is_new(path: Path) -> bool:
    """Whether a directory is as `Directories.new` has made it."""
    try:
        found = path.lstat()
        return (found.st_mode, found.st_uid) == (0o40700, os.geteuid()) and not os.listdir(path)
    except OSError:
        return False


@pytest.fixture(scope="session")
def _directories() -> Iterator[Directories]:
    # A program may still write there as the last test ends.
    with tempfile.TemporaryDirectory(
        prefix="mpw-tests-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        yield Directories(folder)


@pytest.fixture
def tmp_path(_directories: Directories) -> Path:
    """A new directory, in place of pytest's: see `Directories`."""
    return _directories.new()


@pytest.fixture(autouse=True)
def _runtime_directory_of_its_own(
    monkeypatch: pytest.MonkeyPatch, _directories: Directories
) -> None:
    """Keep the hooks of tests away from those of real jobs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(_directories.empty()))


@pytest.fixture
def runtime_in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory on tmpfs, where rings are mapped files and nothing is lost in them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)
