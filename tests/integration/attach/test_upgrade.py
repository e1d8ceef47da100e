"""Upgrades between two attaches: the new hook runs, and what stays of the old one is bounded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mpwatch
from mpwatch.attach.inject import detach, inject
from mpwatch.attach.target import read_target
from mpwatch.collect.hook import decode, discovery
from mpwatch.collect.hook.discovery import read_frame
from mpwatch.hook import wire
from tests.integration.attach.conftest import Running, Start
from tests.procfs import eventually

pytestmark = pytest.mark.slow

# Attaches with the installation on PYTHONPATH, prints a word of the hook's hello, and detaches.
VISIT = """
import sys
from mpwatch.attach.inject import inject
from mpwatch.attach.inject import detach
from mpwatch.collect.hook.discovery import read_frame
from mpwatch.attach.target import read_target
from mpwatch.collect.process.procfs import stat_of
from mpwatch.collect.hook import discovery
from mpwatch.model.ids import ProcessId
pid = int(sys.argv[1])
process = stat_of(pid).process
attached = inject(process, timeout_s=20)
assert attached.state == "ready", attached
with discovery.connect(read_target(process).sample()) as client:
    print(read_frame(client, 1, 5).get("marker"))
if sys.argv[2] == "detach":
    assert detach(process, timeout_s=30).state == "absent"
"""


def installation(folder: Path, marker: str) -> Path:
    """A copy of this mpwatch whose hook has a word in its hello."""
    source = Path(mpwatch.__file__).parent
    shutil.copytree(source, folder / "mpwatch", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "mpwatch" / "hook" / "requests.py"
    text = file.read_text()
    changed = text.replace('"protocol":', f'"marker": "{marker}", "protocol":', 1)
    assert changed != text
    file.write_text(changed)
    return folder


def attach_with(folder: Path, running: Running, then: str) -> str:
    """The word of the hook that an installation has attached."""
    others = [path for path in sys.path if "site-packages" in path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *others])}
    done = subprocess.run(
        [sys.executable, "-c", VISIT, str(running.pid), then],
        env=environment,
        cwd=folder,  # comes before PYTHONPATH
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_after_detach_upgrade_and_attach_the_new_hook_runs(start: Start, tmp_path: Path) -> None:
    running = start("attach_plain", "idle")
    old, new = (installation(tmp_path / word, word) for word in ("old", "new"))
    assert attach_with(old, running, "detach") == "old"
    assert attach_with(new, running, "detach") == "new"
    assert attach_with(new, running, "stay") == "new"
    # This mpwatch is a third version, and reports so about the attached hook.
    assert "of another version" in " ".join(problems(running))
    assert detach(running.process, timeout_s=30).state == "absent"
    assert inject(running.process, timeout_s=20).state == "ready"
    assert problems(running) == []


def problems(running: Running) -> list[str]:
    """The problems of the hook, once its version is known."""
    said: dict[str, object] = {}

    def knows_its_version() -> bool:
        with discovery.connect(read_target(running.process).sample()) as client:
            said.update(read_frame(client, wire.HELLO, 5) or {})
        return said.get("version") is not None

    assert eventually(knows_its_version)
    hello = decode.hello(running.process, 0.0, said)
    return list(hello.data["problems"])
