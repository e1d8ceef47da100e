from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.hook import run
from tests import interpreters
from tests.integration import on_demand
from tests.integration.hook.tracebacks import without_wrappers

pytestmark = pytest.mark.slow

PROGRAM = """
import sys

def fail(depth):
    if depth:
        fail(depth - 1)
    print(__file__, fail.__code__.co_filename, sys.argv, sys.path[0], __name__, __package__)
    print(sorted(globals()), sys.modules["__main__"].fail is fail)
    print(globals().get("__annotations__"), sys.exc_info(), sys.flags, sys.warnoptions)
    raise ValueError("as it should")

if len(sys.argv) > 2:
    sys.exit(" ".join(sys.argv))
fail(2)
"""
COMMANDS = (
    ("{at}/job.py",),
    ("job.py", "--lr"),
    ("job.py", "--lr", "0.1"),
    ("./job.py",),
    ("folder/../job.py",),
    ("folder",),
    ("./folder/",),
    ("empty",),
    ("-m", "job"),
    ("-m", "folder"),
    ("missing.py",),
    ("folder/../missing.py",),
    ("-m", "missing"),
    ("wrong.py",),
)
# On other Pythons: each way to find a program, and each way not to.
USUAL_ELSEWHERE = (
    ("job.py", "--lr", "0.1"),
    ("job.py", "--lr"),
    ("folder",),
    ("-m", "job"),
    ("missing.py",),
    ("-m", "missing"),
    ("wrong.py",),
)
PYTHONS = [Path(sys.executable), *map(Path, interpreters.other_versions())]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("folder", "empty"):
        (tmp_path / name).mkdir()
    for name in ("job.py", "folder/__main__.py"):
        (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("def\n")
    return tmp_path


def outcome(command: list[str], place: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("python", PYTHONS, ids=interpreters.version_of)
def test_a_program_is_found_and_behaves_as_under_the_interpreter_alone(
    python: Path, place: Path
) -> None:
    all_of_them = on_demand.IS_SET or python == PYTHONS[0]
    for arguments in COMMANDS if all_of_them else USUAL_ELSEWHERE:
        given = [part.format(at=place) for part in arguments]
        alone = outcome([str(python), "-B", *given], place)
        with_hook = outcome([str(python), "-B", *run.command(given)[1:]], place)
        errors = without_wrappers(with_hook[2], interpreters.version_of(python))
        assert (*with_hook[:2], errors) == alone


def test_in_a_removed_working_directory_programs_are_found_as_by_the_interpreter(
    place: Path,
) -> None:
    alone, with_hook = place / "empty", place / "folder" / "empty"
    for program in (str(place / "job.py"), "job.py"):
        ends = []
        for at, given in ((alone, [program]), (with_hook, run.command([program])[1:])):
            at.mkdir(exist_ok=True)
            leave = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"]
            ends.append(outcome([*leave, sys.executable, "-B", *given], at))
        assert ends[0] == ends[1]
