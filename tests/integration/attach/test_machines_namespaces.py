"""Targets in containers: other users, other pids, other mounts, and the rights for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.plan import plan_injection
from mpwatch.attach.target import read_target
from mpwatch.collect.hook import discovery
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from tests import procfs
from tests.integration.attach.conftest import Start
from tests.integration.hook.client import wait_for_sockets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces for others"),
    pytest.mark.skipif(
        shutil.which("unshare") is None or shutil.which("setpriv") is None,
        reason="util-linux has to be installed",
    ),
]

# A user namespace in which the users 100000 to 165535 outside are 0 to 65535, as containers have
# it, with a /tmp that was mounted inside: nobody from outside may put a file there.
CONTAINER = """
import os, subprocess, sys
ready_out, ready_in = os.pipe(); go_out, go_in = os.pipe()
child = os.fork()
if not child:
    os.close(ready_out); os.close(go_in)
    import ctypes
    libc = ctypes.CDLL(None)
    libc.unshare(0x10000000)
    os.write(ready_in, b"x"); os.read(go_out, 1)
    os.setgroups([]); os.setresgid(0, 0, 0); os.setresuid(0, 0, 0)
    libc.prctl(1, 9)  # PR_SET_PDEATHSIG: end with the program that started this
    os.environ.pop("XDG_RUNTIME_DIR", None)
    script = "mount -t tmpfs -o mode=1777 none /tmp && exec " + sys.argv[1] + " -c \\"$INNER\\""
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
                          "sh", "-c", script])
os.close(ready_in); os.close(go_out)
os.read(ready_out, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write("0 100000 65536")
os.write(go_in, b"x")
os.waitpid(child, 0)
"""
INNER = 'import time\nprint("ready", flush=True)\nwhile True: time.sleep(0.02)'


@pytest.fixture
def inner(start: Start, tmp_path: Path) -> ProcessId:
    """A Python process in namespaces of its own, by its pid outside."""
    program = tmp_path / "container.py"
    program.write_text(CONTAINER)
    # An interpreter that unprivileged users can read.
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    os.environ["INNER"] = INNER
    try:
        running = start(str(program.with_suffix("")), python)
    finally:
        del os.environ["INNER"]
    (unshared,) = procfs.children(running.pid)
    (pid,) = procfs.children(unshared)
    return stat_of(pid).process


def test_a_target_of_another_user_namespace_is_found_by_its_names_inside(inner: ProcessId) -> None:
    target = read_target(inner)
    assert (target.uid, target.uid_inside, target.pid_inside) == (100000, 0, 1)
    attached = inject(inner, timeout_s=10)
    assert (attached.state, attached.method) == ("ready", "pending call"), attached
    assert inject(inner).method == "already there"
    with discovery.connect(target.sample()) as client:
        assert client.getpeername()
    folder = Path(f"/proc/{inner.pid}/root/tmp/mpwatch-0")
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {100000}
    assert detach(inner, timeout_s=10).state == "absent"
    assert list(folder.iterdir()) == []


def test_an_observer_without_rights_gets_the_other_user_namespace_as_reason(
    inner: ProcessId,
) -> None:
    done = subprocess.run(
        [
            "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
            sys.executable, "-c",
            "import sys; from mpwatch.collect.host.ptrace_access import check\n"
            "found = check(int(sys.argv[1])); print(found.reason); print(found.fix)",
            str(inner.pid),
        ],
        capture_output=True,
        text=True,
        cwd="/",
    )  # fmt: skip
    if "Permission denied" in done.stderr or "No module named" in done.stderr:
        pytest.skip("this installation cannot be read by others")
    assert done.stdout.splitlines()[0] == "it is in another user namespace"
    assert "or run mpwatch inside that container" in done.stdout


@pytest.mark.parametrize("has_procfs", [False, True])
def test_a_target_without_procfs_is_refused_before_anything_is_written(
    start: Start, tmp_path: Path, runtime: Path, has_procfs: bool
) -> None:
    """There the hook was loaded, found no name for its files, and could not answer.

    With the procfs of the outer pid namespace, as without `unshare --mount-proc`, all is known.
    """
    program = tmp_path / "bare.py"
    script = 'exec "$@"' if has_procfs else 'mount -t tmpfs none /proc && exec "$@"'
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "-"]
    command = [*namespaces, sys.executable, "-c", INNER]
    program.write_text(f"import os\nos.execvp('unshare', {command!r})\n")
    running = start(str(program.with_suffix("")))
    (pid,) = procfs.children(running.pid)
    attached = inject(stat_of(pid).process, timeout_s=20)
    if has_procfs:
        assert attached.state == "ready", attached
        assert detach(stat_of(pid).process, timeout_s=20).state == "absent"
        return
    assert attached.state == "absent"
    assert attached.reason.startswith("it has no procfs at /proc that shows it")
    assert list(runtime.iterdir()) == []
    assert len(procfs.threads(pid)) == 1


OTHER_CLOCKS = ("unshare", "--time", "--monotonic=500000", "--boottime=500000", "--fork")
needs_time_namespaces = pytest.mark.skipif(
    subprocess.run([*OTHER_CLOCKS, "true"], capture_output=True, check=False).returncode != 0,
    reason="this kernel has no time namespaces",
)


@pytest.fixture
def with_other_clocks(start: Start, tmp_path: Path) -> ProcessId:
    """A Python process in a time namespace of its own, whose clocks are ahead."""
    program = tmp_path / "clocks.py"
    command = [*OTHER_CLOCKS, "--kill-child", sys.executable, "-c", INNER]
    program.write_text(f"import os\nos.execvp('unshare', {command!r})\n")
    running = start(str(program.with_suffix("")))
    (pid,) = procfs.children(running.pid)
    return stat_of(pid).process


@needs_time_namespaces
def test_a_target_whose_clocks_differ_is_excluded_and_continues(
    with_other_clocks: ProcessId, runtime: Path
) -> None:
    attached = inject(with_other_clocks, timeout_s=10)
    (planned,) = plan_injection((read_target(with_other_clocks).sample(),)).processes

    assert (attached.state, planned.method) == ("absent", "")
    assert attached.reason == planned.reason
    assert "time namespace" in attached.reason
    assert f"nsenter --time --target {with_other_clocks.pid}" in attached.fix
    assert list(runtime.glob("mpwatch/*")) == []
    assert stat_of(with_other_clocks.pid).state in "RS"


@needs_time_namespaces
def test_an_observer_with_the_clocks_of_the_target_injects_the_hook(
    with_other_clocks: ProcessId,
) -> None:
    pid = str(with_other_clocks.pid)
    mpwatch = [sys.executable, "-m", "mpwatch", "dump", pid, "--hook", "--no-stacks", "--json"]
    done = subprocess.run(
        ["nsenter", "--time", "--target", pid, *mpwatch], capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    (process,) = json.loads(done.stdout)["processes"]
    assert process["hook"]["state"] == "ready"
    assert b"The hook was detached from 1 process." in done.stderr


@needs_time_namespaces
def test_a_hook_from_the_start_in_other_clocks_is_named_as_that_and_can_be_detached(
    start: Start, runtime: Path, tmp_path: Path
) -> None:
    program, inner = tmp_path / "clocks.py", tmp_path / "inner.py"
    inner.write_text(INNER)
    run = str(Path(__file__).parents[3] / "mpwatch/hook/run.py")
    command = [*OTHER_CLOCKS, "--kill-child", sys.executable, run, str(inner)]
    program.write_text(f"import os\nos.execvp('unshare', {command!r})\n")
    (pid,) = procfs.children(start(str(program.with_suffix(""))).pid)
    (files,) = wait_for_sockets(runtime, 1)
    assert files == pid

    observed = [sys.executable, "-m", "mpwatch"]
    dump = [*observed, "dump", str(pid), "--no-stacks", "--json"]
    done = subprocess.run(dump, capture_output=True, check=True)
    (process,) = json.loads(done.stdout)["processes"]
    assert process["hook"]["state"] == "absent"
    assert "another time namespace than mpwatch" in process["hook"]["reason"]
    assert f"nsenter --time --target {pid}" in process["hook"]["reason"]
    inside = ["nsenter", "--time", "--target", str(pid), *dump]
    done = subprocess.run(inside, capture_output=True, check=True)
    (process,) = json.loads(done.stdout)["processes"]
    assert (process["hook"]["state"], process["hook"]["lost"]) == ("ready", 0)
    done = subprocess.run([*observed, "detach", str(pid)], capture_output=True, check=False)
    assert done.returncode == 0, done
    assert wire.THREAD_NAME.decode() not in procfs.thread_names(pid)
