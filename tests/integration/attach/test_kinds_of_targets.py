"""Attaching to the interpreters and environments that users have."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.inject_tree import inject_tree
from mpwatch.attach.outcomes import Attached
from mpwatch.attach.plan import plan_injection
from mpwatch.model.samples import ProcSample
from tests import interpreters, procfs
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_blocked_calls import is_blocked
from tests.integration.on_demand import IS_SET, on_each_python
from tests.procfs import eventually

pytestmark = pytest.mark.slow

PYENV = [str(path) for path in interpreters.installed("3.1[0-9]*/bin/python3.[0-9][0-9]")]
PYTHONS = sorted(map(str, Path("/usr/bin").glob("python3.1[0-9]"))) + PYENV


@pytest.mark.parametrize(
    ("python", "what"),
    on_each_python(
        PYTHONS, [("busy",), ("spin",), ("idle",), ("threads",)], [("idle",), ("threads",)]
    ),
)
def test_every_interpreter_of_this_machine_is_injected_and_detached(
    start: Start, runtime: Path, python: str, what: str
) -> None:
    running = start("attach_plain", what, python=python)
    attached = inject(running.process, timeout_s=30)
    assert attached.state == "ready", attached
    assert attached.method == "pending call"
    assert inject(running.process).method == "already there"
    assert [p.name for p in runtime.glob("mpwatch/attach-*")] == []
    detached = detach(running.process, timeout_s=30)
    assert detached.state == "absent", detached
    assert list((runtime / "mpwatch").iterdir()) == []
    assert eventually(lambda: len(procfs.threads(running.pid)) in (1, 5))


LOOK_AT_MAIN = """
import sys, time
before, path = set(globals()), list(sys.path)
print("ready", flush=True)
sys.stdin.readline()
import json
print(json.dumps([sorted(set(globals()) - before), sys.path == path]), flush=True)
sys.stdin.read()
"""


def test_the_hook_leaves_no_name_in_main_and_sys_path_as_it_was(
    start: Start, tmp_path: Path
) -> None:
    program = tmp_path / "look.py"
    program.write_text(LOOK_AT_MAIN)
    running = start(str(program.with_suffix("")), stderr=subprocess.STDOUT)
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.1).state == "pending"
    running.say(b"\n")
    assert json.loads(running.line()) == [["before", "json", "path"], True]
    assert eventually(lambda: inject(running.process).state == "ready")


@pytest.mark.parametrize("python", PYTHONS)
def test_a_process_that_has_just_started_survives_and_is_injected(
    python: str, runtime: Path
) -> None:
    for _ in range(10 if IS_SET else 4):
        popen = subprocess.Popen(
            [python, "-c", "import time\nwhile True: time.sleep(0.02)"],
            env={"XDG_RUNTIME_DIR": str(runtime)},
        )
        try:
            target = sample(popen.pid).process
            assert eventually(lambda: inject(target, timeout_s=0.2).state == "ready")  # noqa: B023
            assert popen.poll() is None
        finally:
            popen.kill()
            popen.wait()


@pytest.mark.parametrize("python", [p for p in PYENV if "3.10" not in p])
def test_an_interpreter_that_is_still_starting_is_refused_and_then_starts(
    python: str, tmp_path: Path, runtime: Path
) -> None:
    # An interpreter reads this file to find its home, long before it can run code; Python 3.10
    # looks for it beside the target of its link.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(python)
    os.mkfifo(tmp_path / "pyvenv.cfg")
    popen = subprocess.Popen(
        [str(tmp_path / "bin" / "python"), "-c", "import time\nwhile True: time.sleep(0.02)"],
        env={"XDG_RUNTIME_DIR": str(runtime)},
    )
    try:
        target = sample(popen.pid).process
        assert eventually(lambda: is_blocked(popen.pid))
        refused = inject(target, timeout_s=0.2)
        # It may have been blocked for another reason before that.
        opened: list[int] = []
        assert eventually(lambda: opens_for_writing(tmp_path / "pyvenv.cfg", opened))
        os.write(opened[0], f"home = {Path(python).parent}\n".encode())
        os.close(opened[0])
        assert refused.state == "absent"
        assert "still starting" in refused.reason
        assert eventually(lambda: inject(target).state == "ready")
    finally:
        popen.kill()
        popen.wait()


@pytest.mark.parametrize("python", PYTHONS)
def test_an_interpreter_that_is_not_linked_yet_is_left_alone_and_injected_later(
    python: str, tmp_path: Path, runtime: Path
) -> None:
    # The loader looks for libm here, when it has mapped the interpreter and not yet filled its
    # global offset table. A file of the other word size it passes over (glibc 2.36).
    fifo = tmp_path / "libm.so.6"
    os.mkfifo(fifo)
    popen = subprocess.Popen(
        [python, "-c", "import time\nwhile True: time.sleep(0.02)"],
        env={"XDG_RUNTIME_DIR": str(runtime), "LD_LIBRARY_PATH": str(tmp_path)},
    )
    try:
        target = sample(popen.pid).process
        assert eventually(lambda: is_blocked(popen.pid))
        early = inject(target)
        opened: list[int] = []
        assert eventually(lambda: opens_for_writing(fifo, opened))
        fifo.unlink()
        os.write(opened[0], b"\x7fELF\x01".ljust(64, b"\0"))
        os.close(opened[0])
        assert early.state == "absent"
        assert "still starting" in early.reason
        assert eventually(lambda: inject(target).state == "ready")
        assert popen.poll() is None
    finally:
        popen.kill()
        popen.wait()


def opens_for_writing(fifo: Path, opened: list[int]) -> bool:
    """Whether a FIFO has a reader; it is open for writing then."""
    try:
        opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    return bool(opened)


def sample(pid: int, **changes: object) -> ProcSample:
    from mpwatch.collect.process.procfs import stat_of

    values: dict[str, object] = {
        "process": stat_of(pid).process,
        "at_s": 0.0,
        "parent_pid": 0,
        "name": "python",
        "cmdline": (),
        "state": "S",
        "is_python": True,
        **changes,
    }
    return ProcSample(**values)  # type: ignore[arg-type]


def test_one_refusal_in_a_job_affects_no_other_process_and_helpers_are_excluded(
    start: Start,
) -> None:
    good = [start("attach_plain", "idle") for _ in range(3)]
    stopped, tracker = start("attach_plain", "idle"), start("attach_plain", "idle")
    os.kill(stopped.pid, signal.SIGSTOP)
    assert eventually(lambda: stopped.state == "T")
    samples = [
        sample(good[0].pid),
        sample(stopped.pid, state="T"),
        sample(tracker.pid, role="resource-tracker"),
        sample(good[1].pid),
        sample(good[2].pid),
    ]
    seen: list[Attached] = []
    outcomes = inject_tree(samples, seen.append, timeout_s=30)
    assert [o.state for o in outcomes] == ["ready", "absent", "absent", "ready", "ready"]
    assert outcomes[1].reason == "it is stopped"
    assert "resource tracker" in outcomes[2].reason
    assert sorted(o.process for o in seen) == sorted(o.process for o in outcomes)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
def test_a_target_in_other_mounts_and_pids_gets_a_copy_of_the_hook(
    start: Start, tmp_path: Path
) -> None:
    program = tmp_path / "unshared.py"
    program.write_text(
        "import os, sys\n"
        "inner = 'import time\\nprint(\"ready\", flush=True)\\nwhile True: time.sleep(0.02)'\n"
        "script = 'mount -t tmpfs none /tmp && exec ' + sys.executable + ' -c \"$INNER\"'\n"
        "os.environ['INNER'] = inner\n"
        "del os.environ['XDG_RUNTIME_DIR']\n"
        "os.execvp('unshare', ['unshare', '--mount', '--pid', '--fork', '--mount-proc',"
        " '--kill-child', 'sh', '-c', script])\n"
    )
    running = start(str(program.with_suffix("")))
    inner = procfs.children(running.pid)[0]
    target = sample(inner).process
    (planned,) = plan_injection([sample(inner)]).processes
    assert [words for words in planned.writes if "hook-" in words and "/tmp/mpwatch-0" in words]
    attached = inject(target, timeout_s=30)
    assert attached.state == "ready", attached
    folder = Path(f"/proc/{inner}/root/tmp/mpwatch-0")
    assert [p.name[:5] for p in folder.iterdir() if p.is_dir()] == ["hook-"]
    assert detach(target, timeout_s=30).state == "absent"
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_attaches_to_another_users_process_with_files_of_that_user() -> None:
    popen = subprocess.Popen(
        ["/usr/bin/python3", "-c", "import time\nwhile True: time.sleep(0.02)"],
        user=65534, group=65534, extra_groups=[], env={}, cwd="/",
    )  # fmt: skip
    try:
        target = sample(popen.pid).process
        assert eventually(lambda: inject(target, timeout_s=30).state == "ready")
        folder = Path("/tmp/mpwatch-65534")
        assert folder.stat().st_uid == 65534
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {p.lstat().st_uid for p in folder.iterdir()} == {65534}
        assert detach(target, timeout_s=30).state == "absent"
        left = {path.name.split("-")[0] for path in folder.iterdir()}
        assert left.isdisjoint({"hook", "attach", str(popen.pid)})
    finally:
        popen.kill()
        popen.wait()


def test_the_symbols_of_this_interpreter_are_found() -> None:
    from mpwatch.attach.native import cpython_symbols

    found = cpython_symbols.find(os.getpid())
    assert found.version == sys.version_info[:2]
    assert not found.is_free_threaded
    assert found.locking_ranges
