"""mpwatch as a single file, built as README says, on a Python without packages.

The file is MPWATCH_PYZ; without that, README's command makes it where shiv is on PATH.
The root of a Debian system with python3 and nothing else is MPWATCH_DEBIAN, made by root with
`debootstrap --variant=minbase --include=python3 bookworm FOLDER`; its Python has to be of the minor
version that made the file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import mpwatch
from tests.conftest import Start
from tests.integration.nodes.test_job import agents, until
from tests.integration.nodes.test_job import mark as mark
from tests.integration.nodes.test_job import sleepers as sleepers
from tests.integration.on_demand import IS_SET

pytestmark = pytest.mark.slow
CHECKOUT = Path(mpwatch.__file__).parents[1]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the single file."""
    given = os.environ.get("MPWATCH_PYZ")
    if given is not None:
        return given
    if not IS_SET or shutil.which("shiv") is None:
        pytest.skip("needs MPWATCH_PYZ=PATH of a single file, or shiv")
    # A copy, without what was built before: setuptools writes into the folder that it builds.
    folder = tmp_path_factory.mktemp("single-file") / "checkout"
    unwanted = shutil.ignore_patterns(".*", "tests", "screenshots", "build", "*.egg-info")
    shutil.copytree(CHECKOUT, folder, ignore=unwanted)
    (line,) = [each for each in _lines(CHECKOUT / "README.md") if "-o mpwatch.pyz" in each]
    _, builds, runs = line.split(" && ")
    environment = {**os.environ, "SHIV_ROOT": str(folder / "unpacked")}
    for command in (builds, runs):
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return str(folder / "mpwatch.pyz")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def bare(archive: str, tmp_path: Path) -> list[str]:
    """The command of the single file by a Python without packages, and without the user's home."""
    venv.create(tmp_path / "bare", with_pip=False)
    environment = ["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin"]
    return [*environment, str(tmp_path / "bare" / "bin" / "python"), archive]


def test_a_single_file_reads_a_job_and_its_agents_are_the_same_file(
    bare: list[str], sleepers: list[int], mark: str
) -> None:
    options = ["--json", "--match", f"MPWATCH_TEST_JOB={mark}"]
    done = subprocess.run(
        [*bare, "dump", "--job", "local:2", *options], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert sorted(p["pid"] for node in nodes for p in node["processes"]) == sorted(sleepers)
    sources = {
        thread["stack_source"]
        for node in nodes
        for process in node["processes"]
        for thread in process["threads"]
    }
    assert "py-spy" in sources
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in {
        process["python"] for node in nodes for process in node["processes"]
    }


@pytest.fixture
def debian(archive: str) -> list[str]:
    """The command that runs a program in the Debian system, with a `/proc` and the single file."""
    root = os.environ.get("MPWATCH_DEBIAN")
    if root is None or os.geteuid() != 0:
        pytest.skip("needs root, a single file and MPWATCH_DEBIAN=FOLDER")
    shutil.copy(archive, Path(root) / "mpwatch.pyz")
    shutil.rmtree(Path(root) / "root" / ".shiv", ignore_errors=True)
    script = 'mount --bind /proc "$0/proc" && exec chroot "$0" "$@"'
    environment = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    return [*environment, "unshare", "-m", "sh", "-c", script, root]


def test_a_debian_with_nothing_but_python_reads_a_job_with_stacks(
    debian: list[str], start: Start, mark: str
) -> None:
    program = "import time\ndef waits_here():\n    time.sleep(600)\nprint('ready')\nwaits_here()"
    variables = [f"MPWATCH_TEST_JOB={mark}", "WORLD_SIZE=1", "RANK=0", "PYTHONUNBUFFERED=1"]
    job = start([*debian, "env", *variables, "/usr/bin/python3", "-c", program])
    job.wait_for("ready")
    match = ["--match", f"MPWATCH_TEST_JOB={mark}"]
    own = [*debian, "/usr/bin/python3", "/mpwatch.pyz"]
    packages = subprocess.run(
        [*debian, "/usr/bin/python3", "-c", "import pip"], capture_output=True, check=False
    )
    done = subprocess.run(
        [*own, "dump", "--job", "local:2", "--json", *match],
        capture_output=True,
        text=True,
        check=False,
    )

    assert b"No module named 'pip'" in packages.stderr
    assert done.returncode == 0, done.stderr
    threads = [
        thread
        for node in json.loads(done.stdout)["nodes"]
        for process in node["processes"]
        for thread in process["threads"]
    ]
    assert {thread["stack_source"] for thread in threads} == {"py-spy"}
    assert "waits_here" in {frame["function"] for thread in threads for frame in thread["stack"]}
    until(lambda: agents(mark) == [])
