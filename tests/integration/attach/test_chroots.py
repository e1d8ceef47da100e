"""Interpreters of other distributions, on demand: name directories made by debootstrap(8).

    debootstrap --variant=minbase --include=python3,python3-msgspec trixie /srv/trixie
    MPWATCH_CHROOTS=/srv/trixie:/srv/sid python -m pytest tests/integration/attach/test_chroots.py

A newer Python than the one that runs the tests is reached in two ways: from here, in another root
directory, and by an mpwatch that runs in there beside it, on the same Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from tests.integration.attach.conftest import PROGRAMS, Start

CHROOTS = [path for path in os.environ.get("MPWATCH_CHROOTS", "").split(":") if path]
ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.xdist_group("chroots"),  # one worker mounts file systems in the chroots
    pytest.mark.slow,
    pytest.mark.skipif(not CHROOTS, reason="MPWATCH_CHROOTS names no directories"),
]

INSIDE = """
import json, subprocess, sys
sys.path.insert(0, "/mpwatch-test")
from mpwatch.attach.inject import inject
from mpwatch.attach.inject import detach
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
environment = {**__import__("os").environ, **json.loads(sys.argv[1])}
target = subprocess.Popen(
    [sys.executable, "/mpwatch-test/attach_plain.py", "idle"], stdout=subprocess.PIPE,
    env=environment)
target.stdout.readline()
process = stat_of(target.pid).process
attached = inject(process, timeout_s=10)
detached = detach(process, timeout_s=10)
target.kill()
target.communicate()
if attached.state == "absent":
    print(json.dumps([attached.state, attached.method, attached.reason, detached.state]))
    sys.exit()
for _ in range(10):  # also those that have hardly begun
    young = subprocess.Popen([sys.executable, "/mpwatch-test/attach_plain.py", "idle"],
        stdout=subprocess.DEVNULL, env=environment)
    process = stat_of(young.pid).process
    for attempt in range(50):
        found = inject(process, timeout_s=0.2)
        if found.state == "ready":
            break
    assert found.state == "ready" and young.poll() is None, (found, young.poll())
    young.kill()
    young.wait()
print(json.dumps([attached.state, attached.method, attached.reason, detached.state]))
"""


@pytest.fixture(params=CHROOTS)
def chroot(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A root directory with procfs and a copy of mpwatch."""
    folder = Path(request.param)
    inside = folder / "mpwatch-test"
    shutil.rmtree(inside, ignore_errors=True)
    # Sockets of what an earlier run killed: while there are any, a copy of the hook stays.
    shutil.rmtree(folder / "tmp/mpwatch-0", ignore_errors=True)
    shutil.copytree(ROOT / "mpwatch", inside / "mpwatch")
    shutil.copy(PROGRAMS / "attach_plain.py", inside)
    (inside / "inside.py").write_text(INSIDE)
    subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True)
    yield folder
    subprocess.run(["umount", str(folder / "proc")], check=True)
    shutil.rmtree(inside)


def test_a_target_in_another_root_takes_a_copy_of_the_hook(
    start: Start, tmp_path: Path, chroot: Path
) -> None:
    program = tmp_path / "enter.py"
    command = ["chroot", str(chroot), "python3", "/mpwatch-test/attach_plain.py", "idle"]
    program.write_text(
        "import os\n"
        "del os.environ['XDG_RUNTIME_DIR']\n"
        f"os.execvp('chroot', {command!r})\n"
    )  # fmt: skip
    running = start(str(program.with_suffix("")))
    attached = inject(running.process, timeout_s=10)
    assert (attached.state, attached.method) == ("ready", "pending call"), attached
    assert detach(running.process, timeout_s=10).state == "absent"
    left = {path.name.split("-")[0] for path in (chroot / "tmp/mpwatch-0").iterdir()}
    assert left.isdisjoint({"attach", "hook", str(running.pid)})


@pytest.mark.parametrize("is_disabled", [False, True])
def test_an_mpwatch_on_the_targets_python_injects_and_obeys_its_settings(
    chroot: Path, is_disabled: bool
) -> None:
    environment = '{"PYTHON_DISABLE_REMOTE_DEBUG": "1"}' if is_disabled else "{}"
    done = subprocess.run(
        ["chroot", str(chroot), "python3", "/mpwatch-test/inside.py", environment],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    if is_disabled:
        reason = "PYTHON_DISABLE_REMOTE_DEBUG is set in its environment"
        assert done.stdout.strip() == f'["absent", "", "{reason}", "absent"]'
        return
    assert done.stdout.strip() == '["ready", "pending call", "", "absent"]'
