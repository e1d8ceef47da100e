"""What mpwatch starts for a target shares nothing with the shell that mpwatch was started from."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.procfs import eventually

pytestmark = pytest.mark.slow
# In the place of the interpreter, or of py-spy: how it was started.
REPORT = """\
#!{python} -IS
import json, os, posix
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
descriptors = {{}}
for name in os.listdir("/proc/self/fd"):
    try: descriptors[name] = os.readlink("/proc/self/fd/" + name)
    except OSError: pass
found = {{
    "descriptors": descriptors,
    "is_leader": os.getsid(0) == os.getpid(),
    "terminal": int(fields[4]),
    "folder": os.getcwd(),
    "environment": open("/proc/self/environ").read(),
}}
with open({path!r} + ".new", "w") as file: json.dump(found, file)
os.rename({path!r} + ".new", {path!r})
"""
# A program with a terminal and an open file that it leaves to the programs that it starts.
CALLER = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from mpwatch.attach.native import tracer
from mpwatch.collect.host import frozen_disk
from mpwatch.collect.process import py_spy
which, program, secret, folder = sys.argv[1:]
for number in (7, 900):
    os.dup2(os.open(secret, os.O_RDONLY), number, inheritable=True)
assert open("/proc/self/stat").read().rpartition(")")[2].split()[4] != "0"
sys.executable = program
if which == "probe":
    frozen_disk.IN_MEMORY = ()
    frozen_disk.blocks_writes(os.open(folder, os.O_PATH), 61001, 61001)
elif which == "tracer":
    tracer.start()
    sys.stdin.readline()
else:
    py_spy.run([program, "dump"], 30)
"""


@pytest.mark.parametrize(
    ("which", "descriptors", "environment"),
    [
        ("probe", ["/dev/null", "pipe", "/dev/null", "folder"], ""),
        ("tracer", ["socket", "/dev/null", "/dev/null"], ""),
        ("py-spy", ["/dev/null", "pipe", "pipe"], "PATH=/usr/bin:/bin\0"),
    ],
    ids=["probe", "tracer", "py-spy"],
)
def test_a_program_for_a_target_has_nothing_of_the_caller(
    tmp_path: Path, which: str, descriptors: list[str], environment: str
) -> None:
    found, program, secret = tmp_path / "found", tmp_path / "program", tmp_path / "secret"
    program.write_text(REPORT.format(python=sys.executable, path=str(found)))
    program.chmod(0o755)
    secret.touch()
    (tmp_path / "folder").mkdir()
    arguments = [which, *map(str, (program, secret, tmp_path / "folder"))]
    ours, its = pty.openpty()
    variables = {"PATH": "/usr/bin:/bin", "SECRET": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, *arguments], stdin=its, stdout=its, stderr=its,
        cwd=Path(__file__).parents[3], env=variables, start_new_session=True,
    ) as caller:  # fmt: skip
        os.close(its)
        try:
            assert eventually(lambda: found.exists() or caller.poll() is not None)
        finally:
            caller.kill()
            os.close(ours)

    said = json.loads(found.read_text())
    opened = [said["descriptors"][number] for number in sorted(said["descriptors"], key=int)]
    assert [Path(each.partition(":")[0]).name for each in opened] == [
        Path(each).name for each in descriptors
    ]
    del said["descriptors"]
    assert said == {
        "is_leader": True, "terminal": 0, "folder": "/", "environment": environment,
    }  # fmt: skip
