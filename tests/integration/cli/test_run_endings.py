"""How `mpwatch run` ends: by SIGTERM, by its terminal going away, with commands from PATH."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpwatch.model.events import HookNote, HookStatus
from mpwatch.observe.recording.file import Recording
from tests import procfs

from .terminal import REPOSITORY, Terminal

pytestmark = pytest.mark.slow

JOB = """\
import os, signal, sys, time
def end(number, frame):
    with open(sys.argv[1] + ".signal", "a") as file:
        file.write(str(number) + "\\n")
    if sys.argv[2] == "stubborn":
        return
    if sys.argv[2] == "graceful":
        os._exit(7)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, end)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(0.02)
"""

# A send of CUDA memory as torch makes it, of which the other process has not let go.
LENDS = """\
import os, struct, sys, time
import torch.multiprocessing
current = sys.modules["_mpwatch_hook"].current
name = f"/torch_{os.getpid()}_counters"
with open("/dev/shm" + name, "wb") as file:
    file.write(bytes(64) + struct.pack("=8q", *[1] * 8))
print(name, flush=True)
class Storage:
    def _share_cuda_(self):
        return 0, b"handle", 1024, 0, name.encode(), 3, b"event", True
class Typed:
    _untyped_storage = Storage()
while not current().server.connections:
    time.sleep(0.01)
sent = Typed()
torch.storage.TypedStorage._share_cuda_(sent)
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
"""


class Job:
    """A program under `mpwatch run`, in a terminal."""

    def __init__(self, folder: Path, manner: str, *options: str) -> None:
        self.note = folder / "pid"
        program = folder / "job.py"
        program.write_text(JOB)
        variables = {"XDG_RUNTIME_DIR": str(folder)}
        folder.chmod(0o700)
        arguments = [*options, str(program), str(self.note), manner]
        self.terminal = Terminal("run", *arguments, variables=variables)

    @property
    def pid(self) -> int:
        deadline_s = time.monotonic() + 60
        while not self.note.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return int(self.note.read_text())

    @property
    def was_sent(self) -> int | None:
        """The first signal that the program's handler saw."""
        try:
            return int(self.note.with_suffix(".signal").read_text().split()[0])
        except OSError:
            return None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    started: list[Job] = []

    def start(manner: str, *options: str) -> Job:
        started.append(Job(tmp_path, manner, *options))
        return started[-1]

    yield start
    for job in started:
        job.terminal.end()
        if job.note.exists() and procfs.is_alive(job.pid):
            os.kill(job.pid, signal.SIGKILL)


def options_of(way: str, folder: Path) -> list[str]:
    if way == "dashboard":
        return []
    return ["--headless", *(["--record", str(folder / "file.mpw")] * (way == "recorded"))]


@pytest.mark.parametrize("way", ["dashboard", "recorded", "headless"])
@pytest.mark.parametrize(("manner", "code"), [("graceful", 7), ("plain", 143)])
def test_sigterm_is_passed_to_the_job_and_its_status_is_returned(
    start: Callable[..., Job], tmp_path: Path, way: str, manner: str, code: int
) -> None:
    job = start(manner, *options_of(way, tmp_path))
    pid = job.pid
    if way == "dashboard":
        job.terminal.read_until("LIVE")

    job.terminal.signal(signal.SIGTERM)

    assert job.terminal.wait() == code
    assert job.was_sent == signal.SIGTERM
    assert not procfs.is_alive(pid)


@pytest.mark.parametrize("way", ["dashboard", "recorded"])
def test_a_job_that_does_not_end_is_left_running_after_a_while(
    start: Callable[..., Job], tmp_path: Path, way: str
) -> None:
    job = start("stubborn", *options_of(way, tmp_path))
    pid = job.pid
    if way == "dashboard":
        job.terminal.read_until("LIVE")

    job.terminal.signal(signal.SIGTERM)

    assert job.terminal.wait() == 143
    assert job.was_sent == signal.SIGTERM
    assert procfs.is_alive(pid)
    assert b"it is left running" in job.terminal.output


@pytest.mark.parametrize("way", ["dashboard", "closed dashboard", "recorded", "headless"])
def test_no_process_outlives_the_terminal(
    start: Callable[..., Job], tmp_path: Path, way: str
) -> None:
    job = start("plain", *options_of(way.split()[-1], tmp_path))
    pid = job.pid
    if "dashboard" in way:
        job.terminal.read_until("LIVE")
    if way == "closed dashboard":
        job.terminal.press("q")
        job.terminal.read_until("the program still runs")

    job.terminal.hang_up()

    assert job.terminal.wait() == 129
    assert job.was_sent == signal.SIGHUP
    assert not procfs.is_alive(pid)


def test_a_dashboard_that_ignores_sighup_sees_that_its_terminal_is_gone(
    start: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup(1)
    try:
        job = start("plain")
        pid = job.pid
    finally:
        signal.signal(signal.SIGHUP, before)
    job.terminal.read_until("LIVE")

    job.terminal.hang_up()

    assert job.terminal.wait() == 129
    assert not procfs.is_alive(pid)


def installed(folder: Path, name: str, head: str) -> dict[str, str]:
    """A console script in a folder that comes first in PATH."""
    body = (
        "import sys\nprint(bool(sys.modules.get('_mpwatch_hook')), sys.argv[1:], sys.executable)\n"
    )
    path = folder / name
    path.write_text(head + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "XDG_RUNTIME_DIR": str(folder),
    }


def run_headless(
    name: str, *arguments: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpwatch", "run", "--headless", name, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "head",
    [
        f"#!{sys.executable}\n",
        "#!/usr/bin/env python3\n",
        f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_python_command_from_path_runs_with_the_hook(tmp_path: Path, head: str) -> None:
    tmp_path.chmod(0o700)
    environment = installed(tmp_path, "train-tool", head)

    done = run_headless("train-tool", "--lr", "0.1", environment=environment)

    assert done.stdout.startswith("True ['--lr', '0.1'] "), done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["no-such-command-anywhere", "./missing.py"])
def test_what_does_not_exist_is_refused_in_one_sentence(name: str) -> None:
    done = run_headless(name, environment={**os.environ, "PYTHONPATH": str(REPOSITORY)})

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("mpwatch: ")
    assert "mpwatch run -m MODULE" in done.stderr


LOOK = "import sys; print(sys.modules.get('_mpwatch_hook') is not None, *sys.argv[1:])"


def script(folder: Path, name: str, text: str, mode: int) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("head", "mode"), [("#!/bin/sh\n", 0o700), ("#!/bin/sh\n", 0o600), ("", 0o600)]
)
def test_the_python_programs_of_a_shell_script_run_with_the_hook(
    tmp_path: Path, head: str, mode: int
) -> None:
    tmp_path.chmod(0o700)
    text = f'{head}{sys.executable} -c "{LOOK}" "$@"\nexit 5\n'
    path = script(tmp_path, "job.sh", text, mode)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_RUNTIME_DIR": str(tmp_path)}

    done = run_headless(path, "a b", environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (5, "True a b\n", "")

    done = run_headless("sh", path, "a b", environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (5, "True a b\n", "")

    environment["MPWATCH_DISABLE"] = "1"
    done = run_headless(path, "a b", environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (5, "False a b\n", "")


def test_a_program_that_is_not_python_ends_as_it_would_without_mpwatch(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    done = run_headless("sh", "-c", "kill -KILL $$", environment=environment)
    assert done.returncode == -signal.SIGKILL

    recording = str(tmp_path / "file.mpw")
    command = [sys.executable, "-m", "mpwatch", "run", "--headless", "--record", recording]
    text = f"{sys.executable} -c 'import time; time.sleep(2)'; exit 6"
    assert subprocess.call([*command, "sh", "-c", text], env=environment, timeout=60) == 6
    reading = [sys.executable, "-m", "mpwatch", "diagnose", recording]
    found = subprocess.run(reading, env=environment, capture_output=True, text=True, timeout=60)
    assert "exit code 6" in found.stdout


def test_the_dashboard_shows_the_python_programs_of_a_shell_script(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    text = f"{sys.executable} -c 'import time; time.sleep(60)'\n"
    path = script(tmp_path, "job.sh", text, 0o600)
    terminal = Terminal("run", path, variables={"XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        terminal.read_until("LIVE")
        terminal.read_until("ready")
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 143
    finally:
        terminal.end()


def test_a_folder_that_is_called_like_a_command_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    environment = installed(tmp_path, "train-tool", f"#!{sys.executable}\n")
    (tmp_path / "sources" / "train-tool").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "sources")

    done = run_headless("train-tool", environment=environment)

    assert done.stdout.startswith("True [] ")


def test_a_recording_has_the_note_of_the_last_moment_once(tmp_path: Path) -> None:
    """The forked child, which inherits the hook, has lent nothing."""
    (tmp_path / "lends.py").write_text(LENDS)
    file = tmp_path / "file.mpw"
    tmp_path.chmod(0o700)
    command = ["run", "--headless", "--record", str(file), str(tmp_path / "lends.py")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", *command],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    Path("/dev/shm", done.stdout.strip().lstrip("/")).unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr

    with Recording(str(file)) as recording:
        kept = [each for each in recording.inputs() if isinstance(each, (HookNote, HookStatus))]
    notes = [each for each in kept if isinstance(each, HookNote) and each.kind == "cuda-lent"]
    assert [each.data["unreleased"] for each in notes] == [1], "\n".join(map(str, kept))
