"""The ways in which interpreters are built: each takes the hook, or is refused with its reason.

Chroots are named as for `test_chroots`; every `python3.N` in them is tried. What is seldom
installed is stood in for by a small C program that exports what the real build does.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.plan import plan_injection
from mpwatch.collect.process.procfs import stat_of
from tests.integration.attach.conftest import PROGRAMS, Running, Start
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.hook.client import wait_for_sockets
from tests.interpreters import MUSL

ROOT = Path(__file__).parents[3]
CHROOTS = [path for path in os.environ.get("MPWATCH_CHROOTS", "").split(":") if path]
INTERPRETERS = [
    (chroot, "/usr/bin/" + name)
    for chroot in CHROOTS
    for name in sorted(os.listdir(f"{chroot}/usr/bin"))
    if re.fullmatch(r"python3\.\d+(-\w*pie|[dt])?", name)
]
needs_chroots = pytest.mark.skipif(not CHROOTS, reason="MPWATCH_CHROOTS names no directories")
# One worker of xdist runs all tests of chroots: they mount file systems there.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chroots")]

# The names by which an interpreter is known; see `mpwatch.attach.native.cpython_symbols`.
FAKE = """
#include <unistd.h>
int Py_AddPendingCall(void *f, void *a) { return 0; }
int PyRun_SimpleString(const char *t) { return 0; }
int Py_IsInitialized(void) { return 1; }
#ifdef FREE_THREADED
void _Py_MergeZeroLocalRefcount(void *o) {}
#endif
int main(void) { write(1, "ready\\n", 6); for (;;) pause(); }
"""

INSIDE = """
import json, subprocess, sys
sys.path.insert(0, "/mpwatch-builds")
from mpwatch.attach.inject import inject
from mpwatch.attach.inject import detach
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
target = subprocess.Popen([sys.argv[1], "/mpwatch-builds/attach_plain.py", "idle"], stdout=-1)
target.stdout.readline()
process = stat_of(target.pid).process
attached = inject(process, timeout_s=20)
detached = detach(process, timeout_s=20)
target.kill()
target.communicate()
print(json.dumps([attached.state, attached.method, attached.reason, detached.state]))
"""


@pytest.fixture
def laid_in(request: pytest.FixtureRequest) -> Iterator[tuple[Path, str]]:
    """A chroot with procfs and a copy of mpwatch, and an interpreter in it."""
    folder, python = Path(request.param[0]), request.param[1]
    inside = folder / "mpwatch-builds"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(ROOT / "mpwatch", inside / "mpwatch")
    shutil.copy(PROGRAMS / "attach_plain.py", inside)
    (inside / "inside.py").write_text(INSIDE)
    subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True)
    yield folder, python
    subprocess.run(["umount", str(folder / "proc")], check=True)
    shutil.rmtree(inside)


@needs_chroots
@pytest.mark.parametrize("laid_in", INTERPRETERS, indirect=True)
def test_every_build_gets_the_hook_from_outside_its_root(
    start: Start, tmp_path: Path, laid_in: tuple[Path, str]
) -> None:
    chroot, python = laid_in
    command = ["chroot", str(chroot), python, "/mpwatch-builds/attach_plain.py", "idle"]
    program = tmp_path / "enter.py"
    program.write_text(
        f"import os\ndel os.environ['XDG_RUNTIME_DIR']\nos.execvp('chroot', {command!r})\n"
    )
    running = start(str(program.with_suffix("")))
    attached = inject(running.process, timeout_s=20)
    assert (attached.state, attached.method) == ("ready", "pending call"), attached
    assert detach(running.process, timeout_s=20).state == "absent"


@needs_chroots
@pytest.mark.parametrize("laid_in", INTERPRETERS, indirect=True)
def test_every_build_gets_the_hook_from_an_mpwatch_beside_it(laid_in: tuple[Path, str]) -> None:
    chroot, python = laid_in
    done = subprocess.run(
        ["chroot", str(chroot), python, "/mpwatch-builds/inside.py", python],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '["ready", "pending call", "", "absent"]'


def outcome(command: list[str], **environment: str) -> tuple[str, str]:
    """State and reason of attaching to a program that prints `ready`."""
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environment})
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"ready\n"
        process = stat_of(popen.pid).process
        attached = inject(process, timeout_s=30)
        if attached.state == "ready":
            assert detach(process, timeout_s=30).state == "absent"
        return attached.state, attached.reason
    finally:
        popen.kill()
        popen.communicate()


@pytest.mark.parametrize(
    ("compiler", "options", "name", "reason"),
    [
        ("gcc", ["-DFREE_THREADED"], "python3.13t", "its Python is free-threaded, which"),
        ("gcc", ["-no-pie", "-DFREE_THREADED"], "python3.14t", "its Python is free-threaded"),
        ("gcc", [], "python3.9", "its Python is 3.9; mpwatch supports 3.10 and later"),
        ("gcc", [], "python", "its Python is an unknown version"),
        ("musl-gcc", [], "python3.12", "its C library (musl) leaves no unused bytes"),
    ],
)
def test_a_build_that_cannot_have_the_hook_is_refused_with_the_reason(
    tmp_path: Path, compiler: str, options: list[str], name: str, reason: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / "fake.c").write_text(FAKE)
    program = str(tmp_path / name)
    subprocess.run(
        [compiler, "-rdynamic", *options, "-o", program, str(tmp_path / "fake.c")], check=True
    )
    popen = subprocess.Popen([program], stdout=subprocess.PIPE)
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"ready\n"
        (planned,) = plan_injection([sample(popen.pid, role="main")]).processes
        attached = inject(stat_of(popen.pid).process, timeout_s=30)
    finally:
        popen.kill()
        popen.communicate()
    assert (attached.state, planned.reason) == ("absent", attached.reason)
    assert attached.reason.startswith(reason)


needs_musl = pytest.mark.skipif(not MUSL, reason="MPWATCH_MUSL_PYTHON names no interpreter")
LEFT_OUT = "its C library (musl) leaves no unused bytes for the data of the call"

# Two children work through a queue of their parent.
WORKING = """
import multiprocessing, time
def work(queue):
    while True: queue.get()
if __name__ == "__main__":
    queue = multiprocessing.Queue()
    for _ in range(2):
        multiprocessing.Process(target=work, args=(queue,), daemon=True).start()
    print("ready", flush=True)
    while True:
        queue.put(1)
        time.sleep(0.02)
"""


def working_on_musl(start: Start, folder: Path, *before: str) -> Running:
    """That job, on musl; `before` are arguments before the program."""
    (folder / "working.py").write_text(WORKING)
    enter = folder / "enter.py"
    command = [MUSL, *before, str(folder / "working.py")]
    enter.write_text(f"import os\nos.execv({MUSL!r}, {command!r})\n")
    return start(str(enter.with_suffix("")))


def mpwatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpwatch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs_musl
def test_a_job_on_musl_is_left_out_with_the_reason_and_read_from_outside(
    start: Start, runtime: Path, tmp_path: Path
) -> None:
    pid = str(working_on_musl(start, tmp_path).pid)
    plan = mpwatch("attach", pid, "--dry-run")
    assert plan.returncode == 0
    assert plan.stdout.count(f"left out: {LEFT_OUT}") == 3, plan
    dump = mpwatch("dump", pid, "--hook")
    assert dump.returncode == 0, dump
    assert "3 running" in dump.stdout
    assert "work" in dump.stdout.partition("STACKS")[2]
    assert f"no hook: {LEFT_OUT}: start the job with mpwatch run" in " ".join(dump.stdout.split())
    detached = mpwatch("detach", pid)
    assert (detached.returncode, detached.stdout.count("there is no hook in it")) == (0, 3)
    assert list(runtime.iterdir()) == []


@needs_musl
def test_a_job_on_musl_has_the_hook_by_mpwatch_run(
    start: Start, runtime: Path, tmp_path: Path
) -> None:
    running = working_on_musl(start, tmp_path, str(ROOT / "mpwatch/hook/run.py"))
    assert len(wait_for_sockets(runtime, 3)) == 3
    assert "hook ready in 3 of 3" in mpwatch("dump", str(running.pid)).stdout
    for socket in (runtime / "mpwatch").glob("*.sock"):
        socket.unlink()
        break
    detached = mpwatch("detach", str(running.pid))
    # The one that does not answer could only be unloaded by a call.
    assert (detached.returncode, detached.stdout.count("the hook is detached")) == (4, 2)
    assert LEFT_OUT in detached.stdout


EMBEDDING = """
#include <unistd.h>
void Py_Initialize(void); int PyRun_SimpleString(const char *);
int main(void) {
    Py_Initialize();
    PyRun_SimpleString("print('ready', flush=True)");
    PyRun_SimpleString("import time\\nwhile True: time.sleep(0.02)");
}
"""
SHARED = sorted(glob.glob("/usr/lib/*/libpython3.1[0-9].so.1.0"))


@pytest.mark.skipif(not SHARED, reason="no shared libpython is installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_program_that_embeds_a_shared_python_is_injected(tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text(EMBEDDING)
    program = str(tmp_path / "app")
    subprocess.run(["gcc", "-o", program, str(tmp_path / "app.c"), SHARED[-1]], check=True)
    assert outcome([program]) == ("ready", "")


@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_relocated_interpreter_called_just_python_gets_the_hook(
    tmp_path: Path, is_stripped: bool
) -> None:
    # As conda has it: one static executable, another prefix, no version in its name.
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), program)
    if is_stripped:
        if shutil.which("strip") is None:
            pytest.skip("strip is not installed")
        subprocess.run(["strip", str(program)], check=True)
    command = [str(program), str(PROGRAMS / "attach_plain.py"), "idle"]
    assert outcome(command, PYTHONHOME=sys.base_prefix) == ("ready", "")
