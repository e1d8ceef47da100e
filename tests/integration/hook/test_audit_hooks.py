"""An audit hook of the program takes a lock of it, as one that writes a log does, or refuses.

What the hook does at the end of the program may not wait for that lock, and nothing of what is
refused to the hook reaches the program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import procfs
from tests.conftest import PROGRAMS
from tests.integration import on_demand
from tests.procfs import eventually

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]  # asm/unistd.h


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "hook_audited.py"), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(*arguments: str) -> tuple[int, str]:
    with program(*arguments) as process:
        output, _ = process.communicate(timeout=WITHIN_S)
    return process.returncode, output


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest) -> Path:
    """The runtime directory, on a disk if that of tests is on one, and on tmpfs."""
    name = "runtime" if request.param == "disk" else "runtime_in_memory"
    found: Path = request.getfixturevalue(name)
    return found


@pytest.mark.parametrize("ending", ["end", "at_once"])
@pytest.mark.usefixtures("directory")
def test_a_program_ends_although_a_thread_never_releases_the_lock(ending: str) -> None:
    assert ended("held", "bare", ending) == (0, "ends\n")
    assert ended("held", "hook", ending) == (0, "ends\n")


@pytest.mark.parametrize("ending", ["end", "at_once"])
def test_a_program_ends_although_its_audit_hook_is_slow(ending: str, directory: Path) -> None:
    """A thread that is killed with the interpreter would keep the lock."""
    assert ended("slow", "hook", ending) == (0, "ends\n")
    if ending == "end":
        assert list((directory / "mpwatch").iterdir()) == []


def test_without_the_hook_a_program_hangs_whose_audit_hook_waits_for_a_killed_thread() -> None:
    """For all events: the interpreter raises some itself when it ends. Nothing can be mended."""
    with program("killed", "bare", "end") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        assert process.stdout.readline().startswith("event ")
        assert eventually(lambda: procfs.call(process.pid) == FUTEX)
        assert process.poll() is None


KINDS = (
    "own", "base", "needing", "RuntimeError", "PermissionError", "SystemExit", "KeyboardInterrupt",
)  # fmt: skip
EVENTS = (
    "builtins.id", "exec", "fcntl", "marshal.", "mmap", "object.__getattr__", "open",
    "os.l", "os.m", "os.r", "socket.", "sys.",
    *["_thread."] * (sys.version_info >= (3, 12)),
)  # fmt: skip
NOT_ALWAYS = ("builtins.id", "fcntl")
"""What the hook does not do, or only where its directory is on a disk."""
NOTHING = "nothing that the hook does was refused"
IN_C = """
#include <string.h>

typedef struct _object PyObject;
extern int PySys_AddAuditHook(int (*)(const char *, PyObject *, void *), void *);
extern void PyErr_SetString(PyObject *, const char *);

static PyObject *kind;
static char prefix[64];
static volatile char *refusals;
static int is_on;

static int hear(const char *event, PyObject *arguments, void *data) {
    if (!is_on || strncmp(event, prefix, strlen(prefix)))
        return 0;
    refusals[0] = 1;
    PyErr_SetString(kind, event);
    return -1;
}

void refuse_now(int is_now_on) { is_on = is_now_on; }

int refuse(PyObject *of_kind, const char *events, char *first) {
    kind = of_kind;
    strncpy(prefix, events, sizeof prefix - 1);
    refusals = first;
    return PySys_AddAuditHook(hear, 0);
}
"""


def compare(event: str, kind: str, how: str, *more: str) -> None:
    def run(way: str) -> tuple[int, str, str]:
        program = str(PROGRAMS / "hook_audit_refuses.py")
        done = subprocess.run(
            [sys.executable, program, way, event, kind, how, *more],
            capture_output=True, text=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip
        # Python 3.12 warns of a fork in a process of several threads.
        return done.returncode, done.stdout, re.sub(r"pid=\d+", "pid=", done.stderr)

    bare, hooked = run("bare"), run("hook")
    assert bare[0] == 0, bare
    if event in NOT_ALWAYS and hooked[2].endswith(f"AssertionError: {NOTHING}\n"):
        assert hooked[:2] == (1, bare[1])
    else:
        assert hooked == bare


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        pytest.param(
            where,
            kind,
            marks=()
            if (where, kind) in (("disk", "base"), ("memory", "KeyboardInterrupt"))
            else on_demand.ON_DEMAND,
        )
        for where in ("disk", "memory")
        for kind in KINDS
    ],
    indirect=["directory"],
)
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.usefixtures("directory")
def test_what_is_refused_to_the_hook_does_not_reach_the_program(event: str, kind: str) -> None:
    compare(event, kind, "function")


@pytest.mark.parametrize("kind", on_demand.cases(KINDS, ("own",)))
@pytest.mark.parametrize("event", ["sys.", "object.__getattr__"])
def test_what_is_refused_after_a_look_at_a_frame_does_not_reach_the_program(
    event: str, kind: str
) -> None:
    compare(event, kind, "passing")


@pytest.mark.parametrize("kind", on_demand.cases(KINDS, ("base",)))
@pytest.mark.parametrize("event", ["", *on_demand.cases(EVENTS, ())])
def test_what_is_refused_in_a_program_with_torch_does_not_reach_it(event: str, kind: str) -> None:
    compare(event, kind, "function", "torch")


@pytest.mark.parametrize("kind", on_demand.cases(KINDS, ("own", "KeyboardInterrupt")))
@pytest.mark.parametrize("event", ["", "import", "exec", "marshal.", "open", "os.", "socket."])
def test_what_is_refused_while_the_hook_is_attached_does_not_reach_the_program(
    event: str, kind: str
) -> None:
    program = str(PROGRAMS / "hook_enters_refused.py")
    done = subprocess.run(
        [sys.executable, program, event, kind],
        capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit hook written in C."""
    source = tmp_path_factory.mktemp("audit") / "audit.c"
    source.write_text(IN_C)
    built = source.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("kind", on_demand.cases(KINDS, ("needing",)))
@pytest.mark.parametrize("event", EVENTS)
def test_what_an_audit_hook_in_c_refuses_does_not_reach_the_program(
    event: str, kind: str, library: str
) -> None:
    compare(event, kind, library)
