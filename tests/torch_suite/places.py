"""Where the tests run: in this interpreter's system, or in a directory made by debootstrap(8)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mpwatch

_SUPPORT = "expecttest"
"""Packages that PyTorch's test classes need beside torch and pytest."""


class Place:
    """A folder for the tests, the hook and what they write, and the command that runs Python there.

    A context manager: the folder goes away with it.
    """

    def __init__(self, command: list[str], folder: Path, inside: str) -> None:
        self.command = command
        self.folder = folder
        """Its path for this process."""
        self.inside = inside
        """Its path for the programs there."""

    def bring(self, tests: Path) -> None:
        """Copy the tests, the hook and the plugin that logs outcomes."""
        for path in tests.glob("test_*.py"):
            shutil.copy(path, self.folder)
        shutil.copy(Path(__file__).with_name("outcome_log.py"), self.folder)
        shutil.copytree(Path(mpwatch.__file__).parent / "hook", self.folder / "hook")
        (self.folder / "run").mkdir(mode=0o700)
        (self.folder / "tmp").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the programs there."""
        return {
            **os.environ,
            "PYTHONPATH": f"{self.inside}:{self.inside}/support",
            "XDG_RUNTIME_DIR": f"{self.inside}/run",
            "MPWATCH_OUTCOMES": f"{self.inside}/outcomes",
            "TMPDIR": f"{self.inside}/tmp",
        }

    def start(self, arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
        """Start Python there, as the leader of a process group, with its output in a file."""
        command = [*self.command, *arguments]
        with open(output, "wb") as file:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self.environment,
                cwd=self.folder,
            )

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def here(python: str = sys.executable) -> Place:
    """This system; what torch's tests need and is not installed comes beside them."""
    folder = Path(tempfile.mkdtemp(prefix="torch-suite-"))
    support = str(folder / "support")
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--target", support, _SUPPORT]
    subprocess.run(pip, check=True, timeout=300)
    return Place([python], folder, str(folder))


def root(directory: Path) -> Place:
    """Another distribution's directory; procfs and /dev must be mounted there."""
    for needed, mount in (
        ("proc/self", "mount -t proc proc"),
        ("dev/null", "mount --rbind /dev"),
    ):
        if not (directory / needed).exists():
            raise SystemExit(f"first: {mount} {directory}/{needed.partition('/')[0]}")
    folder = Path(tempfile.mkdtemp(prefix="torch-suite-", dir=directory / "tmp"))
    inside = f"/tmp/{folder.name}"
    # `env -C` because chroot(8) goes to the root directory.
    command = ["chroot", str(directory), "env", "-C", inside, "python3"]
    return Place(command, folder, inside)
