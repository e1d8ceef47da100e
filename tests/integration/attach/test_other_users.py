"""A second user of the machine can change nothing in a target or in the observer."""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.native import tracer
from mpwatch.attach.outcomes import Attached, Detached
from mpwatch.attach.payload import compiled_payload
from mpwatch.attach.plan import plan_injection
from mpwatch.collect.host.frozen_disk import PROBE
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import PlannedInjection
from tests import interpreters, procfs
from tests.procfs import eventually

pytestmark = [
    pytest.mark.xdist_group("other_users"),  # the directories of these users are shared
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can start programs of two users"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux"),
]
VICTIM, ATTACKER = 61001, 61002
PYTHON = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(p).exists()), "")
TARGET = """
import os, sys, time
pass
print("ready", flush=True)
while True: time.sleep(0.01)
"""
# Creates files with the names that mpwatch uses, before it comes.
PLANT = """
import importlib.util, marshal, os, sys, time
runtime, pid, ticks, proof = sys.argv[1:]
os.umask(0)
text = f"import os; os.close(os.open({proof!r}, os.O_CREAT | os.O_WRONLY, 0o666))"
evil = marshal.dumps(compile(text, "x", "exec"))
old = importlib.util.MAGIC_NUMBER + len(evil).to_bytes(4, "little") + evil
new = marshal.dumps({"text": text, "code": evil, "magic": importlib.util.MAGIC_NUMBER}, 2)
folder = f"{runtime}/mpwatch/attach-{pid}-{ticks}"
os.makedirs(folder, 0o777)
for name, content in (("hook", old), ("payload", new)):
    with open(f"{folder}/{name}", "wb") as file: file.write(content)
os.symlink("/etc/hostname", folder + "/payload.py")
print("planted", flush=True)
time.sleep(600)
"""
# Puts a directory in the place of the runtime directory as soon as that holds an injection's files.
SWAP = """
import importlib.util, marshal, os, sys, time
runtime, pid, ticks, proof = sys.argv[1:]
os.umask(0)
text = f"import os; os.close(os.open({proof!r}, os.O_CREAT | os.O_WRONLY, 0o666))"
evil = marshal.dumps(compile(text, "x", "exec"))
payload = marshal.dumps({"text": text, "code": evil, "magic": importlib.util.MAGIC_NUMBER}, 2)
first, other = f"{runtime}/mpwatch", f"{runtime}/other"
folder = f"{other}/attach-{pid}-{ticks}"
os.makedirs(folder, 0o777)
for name, content in (("payload", payload), ("bootstrap.py", text.encode())):
    with open(f"{folder}/{name}", "wb") as file: file.write(content)
print("planted", flush=True)
while not os.path.exists(first) or os.stat(first).st_nlink == 2: pass
os.rename(first, f"{runtime}/away")
os.rename(other, first)
print("swapped", flush=True)
time.sleep(600)
"""

# Replaces the payload in a directory of its own as soon as that is there.
REPLACE = """
import importlib.util, marshal, os, sys, time
runtime, pid, ticks, proof = sys.argv[1:]
text = f"import os; os.close(os.open({proof!r}, os.O_CREAT | os.O_WRONLY, 0o666))"
evil = marshal.dumps(compile(text, "x", "exec"))
payload = marshal.dumps({"text": text, "code": evil, "magic": importlib.util.MAGIC_NUMBER}, 2)
folder = f"{runtime}/mpwatch/attach-{pid}-{ticks}"
print("planted", flush=True)
while not os.path.exists(folder + "/payload"): pass
with open(folder + "/new", "wb") as file: file.write(payload)
os.chmod(folder + "/new", 0o600)
os.rename(folder + "/new", folder + "/payload")
time.sleep(600)
"""
# What makes a process have more rights than other processes of its user, and the reason shown.
MORE_RIGHTS = {
    "real user": (["--ruid=61002"], "pass", "user ids differ"),
    "effective user": ([], "os.setresuid(0, 61002, 0)", "user ids differ"),
    "saved user": ([], "os.setresuid(61002, 61002, 0)", "user ids differ"),
    "user for files": ([], "ctypes.CDLL(None).setfsuid(61002)", "user ids differ"),
    "effective group": (["--reuid=61002", "--rgid=61002"], "pass", "group ids differ"),
    "saved group": ([], "os.setresgid(61002, 61002, 0)", "group ids differ"),
    "capability": (
        ["--reuid=61002", "--regid=61002", "--inh-caps=+net_raw", "--ambient-caps=+net_raw"],
        "pass",
        "capabilities",
    ),
    "undumpable": (
        ["--reuid=61002", "--regid=61002"],
        "ctypes.CDLL(None).prctl(4, 0)",
        "undumpable",
    ),
    "gave up root": ([], "os.setgid(61002); os.setuid(61002)", "undumpable"),
}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everybody can write to, without the sticky bit."""
    folder = Path(tempfile.mkdtemp(prefix="mpw", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(f"/tmp/mpwatch-{VICTIM}", ignore_errors=True)


@pytest.fixture
def start_as() -> Iterator[Start]:
    """Starts a program as a user, and ends it afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(
        uid: int | list[str], code: str, *arguments: str, runtime: str = ""
    ) -> subprocess.Popen[str]:
        user = uid if isinstance(uid, list) else [f"--reuid={uid}", f"--regid={uid}"]
        popen = subprocess.Popen(
            ["setpriv", *user, "--clear-groups", PYTHON, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"XDG_RUNTIME_DIR": runtime, "PATH": "/usr/bin:/bin"},
        )
        started.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline() in ("ready\n", "planted\n")
        return popen

    yield start
    for popen in started:
        popen.kill()
        popen.communicate()


NAMED = """
import ctypes, threading, time
def run():
    ctypes.CDLL(None).prctl(15, b"mpwatch-hook")
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=run, daemon=True).start()
while True: time.sleep(0.01)
"""


def planned(process: ProcessId) -> PlannedInjection:
    tree = TreeCollector(process).collect(ReadRequest.processes_only())
    assert tree is not None
    return plan_injection(tree.processes).processes[0]


def inject_into(popen: subprocess.Popen[str], timeout_s: float = 2.0) -> Attached:
    return inject(stat_of(popen.pid).process, timeout_s=timeout_s)


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
def test_a_runtime_directory_in_a_shared_folder_runs_no_code_of_other_users(
    shared: Path, start_as: Start
) -> None:
    """Files with the right names are there already; for a swap afterwards see the next test."""
    victim = start_as(VICTIM, TARGET, runtime=str(shared))
    require_unharmed_by_planted_files(start_as, victim, shared)


def require_unharmed_by_planted_files(
    start_as: Start, victim: subprocess.Popen[str], shared: Path
) -> None:
    """A target is injected by another directory; that of the attacker gets no file."""
    ticks = stat_of(victim.pid).start_ticks
    proof = shared / "proof"
    start_as(ATTACKER, PLANT, str(shared), str(victim.pid), str(ticks), str(proof))
    planted = sorted(shared.rglob("*"))
    # On a busy machine the main thread may not stop in time: nothing was changed then.
    assert eventually(lambda: inject_into(victim).state == "ready")
    assert sorted(shared.rglob("*")) == planted
    assert detach(ProcessId(victim.pid, ticks), timeout_s=30).state == "absent"
    assert victim.poll() is None
    assert not proof.exists()


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
def test_files_that_are_swapped_after_they_were_written_are_not_run(
    shared: Path, start_as: Start
) -> None:
    """Between the observer's look at the directory and the target's."""
    require_unharmed_by_a_swap(start_as, VICTIM, shared, shared / "proof")


def require_unharmed_by_a_swap(start_as: Start, uid: int, runtime: Path, proof: Path) -> None:
    """A target that is back in the interpreter only after the swap runs nothing of the attacker."""
    victim = start_as(uid, TARGET.replace("sleep(0.01)", "sleep(1)"), runtime=str(runtime))
    ticks = stat_of(victim.pid).start_ticks
    swap = start_as(ATTACKER, SWAP, str(runtime), str(victim.pid), str(ticks), str(proof))
    inject_into(victim)
    assert swap.stdout is not None
    assert swap.stdout.readline() == "swapped\n"
    # The target has come back twice: nothing of the swapped directory will run any more.
    before = switches(victim.pid)
    assert eventually(lambda: switches(victim.pid) >= before + 4)
    assert not proof.exists()
    assert victim.poll() is None


def switches(pid: int) -> int:
    """How often the main thread of a process has begun to wait."""
    return int(procfs.status(pid, "voluntary_ctxt_switches"))


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
def test_a_program_that_changes_the_variable_at_run_time_loads_the_observers_payload(
    shared: Path, start_as: Start
) -> None:
    change = f"os.environ['XDG_RUNTIME_DIR'] = {str(shared)!r}"
    victim = start_as(VICTIM, TARGET.replace("pass", change), runtime="")
    require_unharmed_by_planted_files(start_as, victim, shared)


def test_a_root_process_loads_nothing_from_a_runtime_directory_of_a_user(
    shared: Path, start_as: Start
) -> None:
    """As under `sudo -E`."""
    runtime = shared / "user"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, ATTACKER, ATTACKER)
    require_unharmed_by_a_swap(start_as, 0, runtime, shared / "proof")


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
def test_a_user_whose_program_runs_with_the_rights_of_root_gets_no_code_into_it(
    shared: Path, start_as: Start
) -> None:
    """As a set-uid program: the directory of its real user is not one of its effective user."""
    runtime = shared / "user"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, ATTACKER, ATTACKER)
    code = TARGET.replace("sleep(0.01)", "sleep(0.5)")
    victim = start_as([f"--ruid={ATTACKER}"], code, runtime=str(runtime))
    ticks, proof = stat_of(victim.pid).start_ticks, shared / "proof"
    start_as(ATTACKER, REPLACE, str(runtime), str(victim.pid), str(ticks), str(proof))

    attached = inject_into(victim)

    before = switches(victim.pid)
    assert eventually(lambda: switches(victim.pid) >= before + 4)
    assert not proof.exists()
    assert (attached.state, attached.method) == ("absent", "")
    assert victim.poll() is None


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
@pytest.mark.parametrize("more", MORE_RIGHTS)
def test_a_process_with_more_rights_than_its_user_is_left_out(
    shared: Path, start_as: Start, more: str
) -> None:
    ids, statement, reason = MORE_RIGHTS[more]
    code = TARGET.replace("pass", statement).replace("import os", "import ctypes, os")
    victim = start_as(ids or ["--reuid=0"], code, runtime=str(shared))

    attached, plan = inject_into(victim), planned(stat_of(victim.pid).process)

    assert (attached.state, attached.method, list(shared.iterdir())) == ("absent", "", [])
    assert reason in attached.reason
    assert (plan.method, plan.reason, plan.fix) == ("", attached.reason, attached.fix)


BOOTSTRAP = """
import ctypes, os, sys
folder, text, ids = sys.argv[1], sys.argv[2], list(map(int, sys.argv[3:]))
os.setresgid(*ids[3:])
os.setresuid(*ids[:3])
print("ready", flush=True)
try: exec(text.replace("PID", str(os.getpid())), {})
except OSError: print("refused", flush=True)
else: print("ran", flush=True)
"""


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
@pytest.mark.parametrize(
    ("owner", "ids", "said"),
    [
        (ATTACKER, [ATTACKER] * 6, "ran"),
        (ATTACKER, [ATTACKER, 0, 0, 0, 0, 0], "refused"),
        (ATTACKER, [0, ATTACKER, 0, 0, 0, 0], "refused"),
        (ATTACKER, [ATTACKER, ATTACKER, 0, 0, 0, 0], "refused"),
        (0, [ATTACKER, 0, 0, 0, 0, 0], "refused"),
        (ATTACKER, [*[ATTACKER] * 3, ATTACKER, 0, ATTACKER], "refused"),
    ],
)
def test_the_bootstrap_code_examines_itself_whose_rights_the_process_has(
    shared: Path, start_as: Start, owner: int, ids: list[int], said: str
) -> None:
    """They may have changed since the observer examined the process."""
    folder = shared / "attach"
    folder.mkdir(mode=0o700)
    payload = folder / "payload"
    payload.write_bytes(marshal.dumps({"text": "pass", "magic": b""}, 2))
    payload.chmod(0o600)
    for path in (folder, payload):
        os.chown(path, owner, owner)
    text = compiled_payload.bootstrap_text(str(folder), 4711).decode().replace("4711", "PID")

    popen = start_as(["--reuid=0"], BOOTSTRAP, str(folder), text, *map(str, ids))

    assert popen.stdout is not None
    assert popen.stdout.readline() == said + "\n"


_started: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.system"):
        _started.append(f"{event}{arguments[:2]}")


def foreign(programs: list[str]) -> list[str]:
    """Those that are not mpwatch's own child, which tries whether a disk takes writes."""
    return [each for each in programs if sys.executable not in each or PROBE not in each]


@pytest.fixture(scope="session")
def started_programs() -> list[str]:
    """Programs that this process starts from now on."""
    sys.addaudithook(_note)
    return _started


@pytest.mark.parametrize("python", interpreters.other_versions(), ids=lambda path: Path(path).name)
def test_the_observer_runs_no_program_for_a_target_of_another_python(
    python: str, shared: Path, started_programs: list[str]
) -> None:
    with subprocess.Popen(
        [python, "-c", TARGET],
        stdout=subprocess.PIPE,
        text=True,
        env={"XDG_RUNTIME_DIR": str(shared)},
    ) as popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.readline() == "ready\n"
            tracer.start()  # mpwatch's own process
            started_programs.clear()
            began_s = time.monotonic()
            attached = inject_into(popen, 60.0)
            found = attached.state, foreign(started_programs)
            assert found == ("ready", []), time.monotonic() - began_s
            detach(stat_of(popen.pid).process)
            assert foreign(started_programs) == []
        finally:
            popen.kill()


@pytest.mark.skipif(not PYTHON, reason="needs a Python that every user can run")
@pytest.mark.parametrize("action", [inject, detach, planned])
def test_the_path_of_a_runtime_directory_does_not_reach_a_terminal_as_it_is(
    start_as: Start, action: Callable[[ProcessId], Attached | Detached | PlannedInjection]
) -> None:
    """A program that looks as if it had a hook, and whose directories are of no use."""
    fallback = Path(f"/tmp/mpwatch-{VICTIM}")
    fallback.mkdir()
    try:
        victim = start_as(VICTIM, NAMED, runtime="/tmp/\x1b]52;c;aGk=\x07\x1b[2J\u202e")
        found = action(stat_of(victim.pid).process)
    finally:
        fallback.rmdir()

    assert "no usable runtime directory" in found.reason
    assert found.reason.isprintable()
    assert found.fix.isprintable()
