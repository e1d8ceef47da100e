"""System calls that the kernel applies to, or refuses because of, all threads of a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpwatch
from mpwatch.hook import run as hook_run
from mpwatch.hook import wire
from tests import interpreters
from tests.conftest import PROGRAMS
from tests.integration.hook.client import wait_for_sockets
from tests.integration.hook.guest import Guest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


def test_a_program_that_gives_up_root_continues_with_all_its_threads() -> None:
    with Guest("setuid", program="hook_privileges.py") as guest:
        assert guest.finish() == (0, "['65534']\n0\n")


@pytest.mark.parametrize("python", interpreters.installed(), ids=interpreters.version_of)
def test_a_program_makes_a_user_namespace_as_it_would_without_the_hook(python: Path) -> None:
    has_it = subprocess.run(
        [str(python), "-c", "import os; os.unshare"], capture_output=True, check=False
    )
    if has_it.returncode:
        pytest.skip("os.unshare is new in Python 3.12")
    done = subprocess.run(
        [str(python), "-B", str(PROGRAMS / "hook_privileges.py"), "unshare"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(mpwatch.__file__).parents[1])},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["unshared", "refused 22 None"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A runtime directory that everybody may enter and write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_a_process_with_the_rights_of_several_users_does_not_get_the_hook(shared: Path) -> None:
    """What one of its users can write would be used with the rights of another one."""
    with Guest("several", program="hook_privileges.py", XDG_RUNTIME_DIR=str(shared)) as guest:
        refused = f"False {wire.SEVERAL_USERS}\n"
        assert guest.finish() == (0, f"{refused}{refused}True\n")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
@pytest.mark.parametrize(
    ("ids", "said"), [([], "(0, 0, 0) True\n"), (["--ruid=65534"], "(65534, 0, 0) False\n")]
)
def test_a_program_with_the_rights_of_several_users_runs_without_the_hook(
    shared: Path, ids: list[str], said: str
) -> None:
    command = hook_run.command([str(PROGRAMS / "hook_privileges.py"), "loaded"])
    variables = {"PYTHONPATH": str(Path(mpwatch.__file__).parents[1])}

    done = subprocess.run(
        ["setpriv", *ids, *command],
        env={**os.environ, **variables, "XDG_RUNTIME_DIR": str(shared)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_child_of_a_process_that_acts_as_another_user_makes_no_files(shared: Path) -> None:
    with Guest("child", program="hook_privileges.py", XDG_RUNTIME_DIR=str(shared)) as guest:
        assert guest.finish() == (0, f"on None None {wire.SEVERAL_USERS}\n")


CALLER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.settimeout(30)
try:
    print(len(door.recv(65536)) > 0)
except ConnectionResetError:
    print(False)
"""


@pytest.mark.parametrize(("uid", "said"), [(65534, "False\n"), (0, "True\n")])
def test_a_hook_answers_no_user_of_a_process_with_the_rights_of_several_but_root(
    shared: Path, uid: int, said: str
) -> None:
    with Guest("changed", program="hook_privileges.py", XDG_RUNTIME_DIR=str(shared)) as guest:
        assert guest.hear() == "ready"
        path = wait_for_sockets(shared, 1)[guest.process.pid]
        for each in (path.parent, path):
            each.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", CALLER, str(path), str(uid)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        guest.tell("end")
        assert guest.finish() == (0, "")

    assert (done.stdout, done.stderr) == (said, "")
