"""System calls that the kernel applies to, or refuses because of, all threads of a process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import mpwatch
from tests import interpreters
from tests.conftest import PROGRAMS
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
