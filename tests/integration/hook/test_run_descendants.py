"""Programs that a job of `mpwatch run` starts: which get the hook, and that none can see how."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.hook import run
from mpwatch.hook.startup import sitecustomize
from tests import interpreters
from tests.conftest import PROGRAMS
from tests.integration.on_demand import on_each_python

pytestmark = pytest.mark.slow

PROGRAM = str(PROGRAMS / "run_descendants.py")
RUN_COMMAND = str(PROGRAMS / "run_command.py")
HOOKED = (
    "inherited",
    "copied",
    "given",
    "with_preexec",
    "by_shell",
    "by_system",
    "by_posix_spawn",
    "by_spawnve",
    "by_exec",
    "by_exec_with_environment",
    "by_fork_exec",
    "after_setting",
    "after_deleting",
    "after_fork",
    "by_grandchild",
    "by_spawned_child",
)
LEFT_ALONE = (
    "without_environment",
    "with_few_variables",
    "by_env_i",
    "isolated",
    "ignoring_the_environment",
    "without_site",
    "disabled",
    "detached",
)
OLD = interpreters.installed("[23].[0-9].*/bin/python")
"""Interpreters that the hook does not support."""
OWN_SITE = """\
import sys
sys.runs_of_the_projects_own = getattr(sys, "runs_of_the_projects_own", 0) + 1
"""


def said(command: list[str], **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command,
        env={**os.environ, "HOME": "/", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def hooked(*arguments: str, python: Path | str = sys.executable) -> list[str]:
    return [str(python), "-B", *run.command([*arguments])[1:]]


@pytest.mark.parametrize("way", HOOKED)
def test_a_program_gets_the_hook_however_it_is_started(way: str) -> None:
    assert said(hooked(PROGRAM, way)) == (0, "hooked\n", "")


@pytest.mark.parametrize("way", LEFT_ALONE)
def test_a_program_that_must_not_or_cannot_have_the_hook_is_left_alone(way: str) -> None:
    code, output, errors = said(hooked(PROGRAM, way))

    assert set(output.split()) == {"unhooked"}
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("python", interpreters.installed(), ids=interpreters.version_of)
@pytest.mark.parametrize("way", ["inherited", "copied", "by_fork_exec", "by_posix_spawn"])
def test_a_program_of_another_supported_python_gets_the_hook(way: str, python: Path) -> None:
    assert said(hooked(PROGRAM, way, str(python))) == (0, "hooked\n", "")
    assert said(hooked(PROGRAM, way, python=python)) == (0, "hooked\n", "")


@pytest.mark.skipif(not OLD, reason="pyenv has no interpreters here")
@pytest.mark.parametrize("python", OLD, ids=interpreters.version_of)
def test_a_program_of_an_unsupported_python_runs_as_it_would_without_the_hook(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OWN_SITE)
    program = tmp_path / "look.py"
    program.write_text(
        "import os, sys\nprint(os.environ.get('PYTHONPATH'), sys.path, len(sys.modules) > 0,"
        " sys.runs_of_the_projects_own, sys.modules['sitecustomize'].__file__)\n"
    )
    start = [sys.executable, "-B", RUN_COMMAND]
    child = [str(python), "-B", str(program)]
    started_hooked = [*hooked(RUN_COMMAND), *child]
    for value in (str(tmp_path), f"{tmp_path}:", f":{tmp_path}"):
        alone = said([*start, *child], PYTHONPATH=value)
        assert said(started_hooked, PYTHONPATH=value) == alone
        assert str(tmp_path / "sitecustomize.py") in alone[1]
        assert not alone[2]


@pytest.mark.parametrize(
    ("python", "own_site"),
    on_each_python(
        [Path(sys.executable), *map(Path, interpreters.other_versions())],
        [("",), (OWN_SITE,), (OWN_SITE + "import no_such_module\n",), ("1 / 0",)],
        [("",), ("1 / 0",)],
    ),
    ids=interpreters.name_of,
)
def test_a_child_sees_no_difference(python: Path, own_site: str, tmp_path: Path) -> None:
    if own_site:
        (tmp_path / "sitecustomize.py").write_text(own_site)
    for value in (str(tmp_path), f":{tmp_path}") if own_site else (None, ""):
        environment = {} if value is None else {"PYTHONPATH": value}
        child = [str(python), "-B", PROGRAM, "same"]
        alone = said([sys.executable, "-B", RUN_COMMAND, *child], **environment)
        with_hook = said([*hooked(RUN_COMMAND), *child], **environment)

        assert with_hook == alone
        assert "NotADirectoryError" in alone[1] or "FileNotFoundError" in alone[1]


def test_a_script_that_extends_the_path_gets_what_it_would_without_the_hook(
    tmp_path: Path,
) -> None:
    look = f"{sys.executable} -c 'import os, sys; print(os.environ[\"PYTHONPATH\"], sys.path)'"
    for edit in ("PYTHONPATH=/x:$PYTHONPATH", "PYTHONPATH=$PYTHONPATH:/x"):
        for value in ({}, {"PYTHONPATH": ""}, {"PYTHONPATH": str(tmp_path)}):
            script = ["sh", "-c", f"export {edit}; cd {tmp_path}; {look}"]
            with_hook = said([*hooked(RUN_COMMAND), *script], **value)
            assert with_hook == said(script, **value)


def test_files_that_another_user_can_change_are_not_loaded_and_not_passed_on(
    tmp_path: Path,
) -> None:
    import shutil

    copy = tmp_path / "hook"
    shutil.copytree(Path(run.__file__).parent, copy)
    command = [sys.executable, "-B", str(copy / "run.py"), PROGRAM, "inherited"]
    assert said(command)[1] == "hooked\n"
    copy.chmod(0o777)

    code, output, errors = said(command)

    assert (code, output, errors) == (0, "unhooked\n", "")


def test_the_folder_is_not_in_the_environment_that_the_program_reads() -> None:
    text = "import os, sys; print(sys.path, os.environ, sys.path_importer_cache)"
    command = [*hooked(RUN_COMMAND), sys.executable, "-c", text]

    code, output, _ = said(command)

    assert code == 0
    assert not re.search(re.escape(sitecustomize.DIRECTORY), output)
