"""Nothing that happens during an injection reaches the program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.outcomes import Attached
from mpwatch.collect.process.procfs import stat_of
from tests import interpreters, procfs
from tests.integration.on_demand import IS_SET, on_each_python
from tests.procfs import eventually

pytestmark = pytest.mark.slow

PYTHONS = [sys.executable, *interpreters.other_versions()]
each_python = pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
Program = Callable[..., subprocess.Popen[str]]


def name_of(parameter: str) -> str:
    """A parameter in the name of a test: of a Python its file name."""
    return Path(parameter).name if parameter in PYTHONS else parameter


@pytest.fixture
def program(runtime: Path) -> Iterator[Program]:
    """Starts a program that prints `ready`, and ends it afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(
        code: str, python: str = sys.executable, *options: str, **env: str
    ) -> subprocess.Popen[str]:
        popen = subprocess.Popen(
            [python, *options, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"XDG_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin", **env},
        )
        started.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        return popen

    yield start
    for popen in started:
        popen.kill()
        popen.communicate()


def inject_into(popen: subprocess.Popen[str], timeout_s: float = 20.0) -> Attached:
    return inject(stat_of(popen.pid).process, timeout_s=timeout_s)


def eject(popen: subprocess.Popen[str]) -> None:
    detach(stat_of(popen.pid).process, timeout_s=2.0)


def wait_for_forks(popen: subprocess.Popen[str], count: int = 40) -> None:
    """Wait until the threads of a program have forked that many children."""
    seen: set[int] = set()

    def are_seen() -> bool:
        seen.update(procfs.children(popen.pid))
        return len(seen) >= count

    assert eventually(are_seen)


def ended(popen: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Ask it to end; its exit code, output and standard error."""
    out, err = popen.communicate("end\n", timeout=60)
    return popen.returncode, out, err


# Runs until its standard input has a line, without blocking in a read.
LOOP = """
import select, sys, time
def loop():
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(1000): pass
"""

RAISING = (
    LOOP
    + """
import atexit, signal
class Deadline({base}): pass
def handler(_, frame):
    # Where a thread gets little cpu, a signal is due each time it runs, so also each time that one
    # is handled. Where no call of `level` would handle it, the program would end, by the timer.
    while frame and frame.f_code is not level.__code__: frame = frame.f_back
    if frame: raise Deadline
counts = {{}}
def count(error):
    name = type(error).__name__
    counts[name] = counts.get(name, 0) + 1
def forever():
    while True: loop(); return
def level(n):
    while True:
        try:
            if n: level(n - 1)
            else: forever()
            return
        except BaseException as error: count(error)
atexit.register(print, "atexit ran")
signal.signal(signal.SIGALRM, handler)
print("ready", flush=True)
is_armed = False
while True:
    try:
        if not is_armed:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        level(6)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        break
    except BaseException as error: count(error)
print(sorted(counts))
"""
)


@pytest.mark.parametrize(
    ("python", "base"),
    on_each_python(
        PYTHONS,
        [("Exception",), ("KeyboardInterrupt",), ("SystemExit",)],
        [("KeyboardInterrupt",)],
    ),
    ids=name_of,
)
def test_a_handler_that_raises_often_gets_only_its_own_exceptions(
    program: Program, python: str, base: str
) -> None:
    popen = program(RAISING.format(base=base), python)
    states = []
    for _ in range(6):
        states.append(inject_into(popen, 1.0).state)
        eject(popen)
        if popen.poll() is not None:
            break
    code, out, err = ended(popen)
    assert (code, out, err) == (0, "['Deadline']\natexit ran\n", "")
    assert "ready" in states


DEEP = (
    LOOP
    + """
is_done = False
def deeper():
    global is_done
    try: deeper()
    except RecursionError:
        if not is_done:
            print("ready", flush=True)  # where this is too deep, the next level up tries again
            read = sys.stdin.fileno()
            select.select([read], [], [], 0)
            is_done = True
            while not select.select([read], [], [], 0)[0]: pass
deeper()
print("ends as it should")
"""
)


@each_python
def test_a_program_at_its_recursion_limit_gets_the_hook_and_continues(
    program: Program, python: str
) -> None:
    popen = program(DEEP, python)
    # Its stack may still grow as it is examined, and then it is refused.
    attempts = [attached := inject_into(popen)]
    while attached.state != "ready" and len(attempts) < 5:
        attempts.append(attached := inject_into(popen))
    assert attached.state == "ready", attempts
    assert ended(popen) == (0, "ends as it should\n", "")


AUDITED = (
    LOOP
    + """
def refuse(event, args):
    if is_on and event == {event!r}: raise {error}
is_on = False
sys.addaudithook(refuse)
is_on = True
print("ready", flush=True)
loop()
is_on = False
print("ends as it should")
"""
)


OWN = "type('Own', (BaseException,), {})('denied')"
"""Of a class that the program has derived from BaseException."""
REFUSALS = [
    ("compile", "SystemExit(3)"),
    ("exec", "RuntimeError('denied')"),
    ("exec", "SystemExit(3)"),
    ("open", "RuntimeError('denied')"),
    ("marshal.loads", "SystemExit(3)"),
    ("socket.bind", "RuntimeError('denied')"),
    *((event, OWN) for event in ("compile", "exec", "open", "os.listdir", "socket.bind")),
]


@pytest.mark.parametrize(
    ("python", "event", "error"),
    on_each_python(PYTHONS, REFUSALS, [("compile", OWN), ("exec", "SystemExit(3)"), ("open", OWN)]),
    ids=name_of,
)
def test_an_audit_hook_that_refuses_fails_the_injection_and_nothing_else(
    program: Program, python: str, event: str, error: str
) -> None:
    popen = program(AUDITED.format(event=event, error=error), python)
    # Without a socket the hook still writes its ring; files of dead processes may stay.
    is_fatal = event not in ("socket.bind", "os.listdir")
    attached = inject_into(popen, 60.0 if is_fatal else 1.0)
    # One second may be too short on a busy machine.
    assert attached.state in ("absent", "ready", *(() if is_fatal else ("pending",))), attached
    if event in ("compile", "exec"):
        assert attached.state == "absent"
        assert attached.reason
    assert ended(popen) == (0, "ends as it should\n", "")


LOCKED = (
    LOOP
    + """
import threading
lock = threading.RLock()
def log(event, args):
    with lock: seen.append(event)
seen = []
sys.addaudithook(log)
print("ready", flush=True)
with lock:
    loop()
end = time.monotonic() + 60
while "_mpwatch_hook" not in sys.modules and time.monotonic() < end: time.sleep(0.01)
seen.clear()
print("ends as it should")
"""
)


def test_an_audit_hook_that_waits_for_a_lock_of_the_main_thread_delays_it_briefly(
    program: Program,
) -> None:
    popen = program(LOCKED)
    assert inject_into(popen, 0.5).state == "pending"
    assert ended(popen) == (0, "ends as it should\n", "")


HOLDING = (
    LOOP
    + """
import os, threading
lock = threading.RLock()
def log(event, args):
    if event == {event!r}:
        with lock: seen.append(event)
seen = []
sys.addaudithook(log)
def fork():
    child = os.fork()
    if not child: os._exit(0)
    os.waitpid(child, 0)
print("ready", flush=True)
with lock:
    loop()
    {then}
print("ends as it should")
"""
)


@pytest.mark.parametrize(
    ("python", "event", "then"),
    on_each_python(
        PYTHONS,
        [
            (event, then)
            for event in ("import", "exec")
            for then in ("fork()", "import wave", "pass")
        ],
        [("import", "fork()"), ("exec", "import wave")],
    ),
    ids=name_of,
)
def test_an_audit_hook_that_waits_for_a_lock_does_not_wait_for_ever(
    program: Program, python: str, event: str, then: str
) -> None:
    """The holder forks or imports, for which it needs the import lock, or the program ends."""
    # Python 3.12 and later warn of the injection's thread where a program forks during it.
    popen = program(HOLDING.format(event=event, then=then), python, "-W", "ignore")
    assert inject_into(popen, 0.5).state == "pending"
    assert ended(popen) == (0, "ends as it should\n", "")


WATCHED = (
    LOOP
    + """
import threading
files = set()
def note(frame, *_):
    files.add(frame.f_code.co_filename)
    return None
{install}
print("ready", flush=True)
loop()
sys.settrace(None); sys.setprofile(None)
print(sorted(name for name in files if "mpwatch" in name))
"""
)


@each_python
@pytest.mark.parametrize(
    "install", ["sys.settrace(note); threading.settrace(note)", "sys.setprofile(note)"]
)
def test_trace_and_profile_functions_see_nothing_of_the_injection(
    program: Program, python: str, install: str
) -> None:
    popen = program(WATCHED.format(install=install), python)
    assert inject_into(popen).state == "ready"
    assert ended(popen) == (0, "[]\n", "")


MONITORED = (
    LOOP
    + """
m = sys.monitoring
def raises(code, offset):
    if "mpwatch" in code.co_filename: raise RuntimeError("not here")
m.use_tool_id(3, "strict")
m.register_callback(3, m.events.PY_START, raises)
m.set_events(3, m.events.PY_START)
print("ready", flush=True)
loop()
m.set_events(3, 0)
print("ends as it should")
"""
)


@pytest.mark.parametrize(
    "python", [p for p in PYTHONS if not p.endswith(("3.10", "3.11"))], ids=lambda p: Path(p).name
)
def test_what_a_monitoring_callback_raises_stays_within_the_injection(
    program: Program, python: str
) -> None:
    if python == sys.executable and sys.version_info < (3, 12):
        pytest.skip("sys.monitoring came with Python 3.12")
    popen = program(MONITORED, python)
    assert inject_into(popen, 1.0).state == "absent"
    assert ended(popen) == (0, "ends as it should\n", "")


PLAIN = LOOP + "print('ready', flush=True)\nloop()\nprint('ends as it should')\n"


MODES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "dev": (("-X", "dev", "-W", "error"), {}),
    "isolated": (("-I", "-S"), {"PYTHONMALLOC": "debug"}),
    "malloc": ((), {"PYTHONMALLOC": "debug"}),
}


@pytest.mark.parametrize(
    ("python", "mode"),
    on_each_python(PYTHONS, [(mode,) for mode in MODES], [("dev",)]),
    ids=name_of,
)
def test_unusual_modes_of_the_interpreter_print_nothing(
    program: Program, python: str, mode: str
) -> None:
    options, env = MODES[mode]
    popen = program(PLAIN, python, *options, **env)
    for _ in range(2):
        assert inject_into(popen).state == "ready"
        eject(popen)
    assert ended(popen) == (0, "ends as it should\n", "")


FORKING = """
import os, sys, threading, time, select
{preload}
hung = forks = 0
def child():
    import json, mmap, struct, socket, pickle, atexit, collections, contextlib
    json.dumps({{}})
def forker():
    global hung, forks
    while not is_over:
        pid = os.fork()
        if not pid:
            try: child()
            except BaseException: os._exit(7)
            os._exit(0)
        forks += 1
        end = time.monotonic() + 10
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                if status: print("status", status)
                break
            if time.monotonic() > end:
                hung += 1
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                break
            time.sleep(0.001)
is_over = False
threads = [threading.Thread(target=forker) for _ in range(4)]
for thread in threads: thread.start()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]: time.sleep(0.001)
is_over = True
for thread in threads: thread.join()
print("hung", hung, forks > 0)
"""
PRELOADED = (
    "import json, mmap, socket, struct, atexit, collections, contextlib, weakref, functools, zlib,"
    " importlib.util, pickle, multiprocessing.queues, multiprocessing.resource_sharer, ctypes"
)


@pytest.mark.parametrize("preload", ["", PRELOADED], ids=["bare", "preloaded"])
def test_children_forked_by_other_threads_during_an_injection_do_not_hang(
    program: Program, preload: str
) -> None:
    for _ in range(5 if IS_SET else 2):
        # The warning about forks with threads imports modules itself; children forked meanwhile by
        # another thread then hang without mpwatch as well (CPython 3.14).
        popen = program(FORKING.format(preload=preload), sys.executable, "-W", "ignore")
        wait_for_forks(popen)
        assert inject_into(popen).state == "ready"
        wait_for_forks(popen)
        code, out, err = ended(popen)
        assert (code, out, err) == (0, "hung 0 True\n", "")


def test_the_files_of_an_injected_hook_are_in_the_runtime_directory(
    program: Program, runtime: Path
) -> None:
    popen = program(PLAIN)

    assert inject_into(popen).state == "ready"

    found = {path.suffix: path for path in (runtime / "mpwatch").iterdir()}
    assert found[".sock"].is_socket()
    # The ring is a file where the runtime directory is on tmpfs, and memory elsewhere.
    assert found.keys() <= {".ring", ".sock", ".notes", ".check"}
