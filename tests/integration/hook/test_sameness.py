from __future__ import annotations

import difflib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import mpwatch
from tests import interpreters
from tests.conftest import PROGRAMS
from tests.integration import on_demand
from tests.integration.hook.tracebacks import without_wrappers

pytestmark = pytest.mark.slow

OTHERS = [Path(path) for path in interpreters.other_versions()]
CASES = (
    "queues",
    "passing",
    "many",
    "kinds",
    "interrupted",
    "starting",
    "ends",
    "pools",
    "forks",
    "fork_errors",
    "registered",
    "commands",
    "crash",
    "last_words",
    "quiet_end",
    "stuck_end",
    "abrupt_end",
    "namesakes",
)
# In the order in which one process does them: sharing changes torch's strategy, and is the last.
TORCH_CASES = ("loaders", "carried", "warned", "worker_deaths", "interrupted", "sharing")
USUAL_TORCH_CASES = ("loaders", "warned", "worker_deaths", "sharing")
CRASHES = ("last_words",)
USUAL_ELSEWHERE = ("forks", "registered")
USUAL_ON_THE_NEWEST = (*USUAL_ELSEWHERE, "ends")
UNTIDY = ("ends", "pools", "forks", "fork_errors", "registered", "crash", "stuck_end", "abrupt_end")
# An exiting process may remove the address of its sharer, or exit before that.
NOBODY_LISTENS = re.compile(
    r"FileNotFoundError: \[Errno 2\] No such file or directory$"
    r"|ConnectionRefusedError: \[Errno N\] Connection refused$",
    re.MULTILINE,
)


def outcome(
    python: Path, program: str, has_hook: str, cases: Sequence[str], *options: str
) -> tuple[int, str]:
    """Exit code and all output, without what differs from run to run."""
    done = subprocess.run(
        [str(python), "-B", *options, str(PROGRAMS / program), has_hook, *cases],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
        # Sets are printed in the order of their hashes.
        env={
            **os.environ,
            "PYTHONPATH": str(Path(mpwatch.__file__).parents[1]),
            "PYTHONHASHSEED": "0",
        },
    )
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", done.stdout)
    text = NOBODY_LISTENS.sub("NOBODY LISTENS", re.sub(r"\b\d{2,}\b", "N", text))
    return done.returncode, without_wrappers(text, interpreters.version_of(python))


def difference(python: Path, program: str, case: str, *options: str) -> str:
    """The difference of exit code and output with and without the hook; empty if there is none."""
    without = outcome(python, program, "without", [case], *options)
    with_hook = outcome(python, program, "with", [case], *options)
    lines = difflib.unified_diff(without[1].splitlines(), with_hook[1].splitlines(), lineterm="")
    codes = "" if without[0] == with_hook[0] else f"codes {without[0]} {with_hook[0]}\n"
    return codes + "\n".join(lines)


@pytest.mark.parametrize("case", CASES)
def test_a_program_prints_raises_and_ends_the_same_with_the_hook_and_without(
    case: str, runtime: Path
) -> None:
    assert difference(Path(sys.executable), "hook_same.py", case) == ""
    left = {path.suffix for path in runtime.glob("mpwatch/*")}
    # Files left by os._exit and signals are for the autopsy; the next hook removes sockets.
    assert left <= (
        {".ring", ".notes", ".sock", ".check"} if case in UNTIDY else {".notes", ".ring"}
    )
    assert not left or case in (*UNTIDY, *CRASHES)


@functools.cache
def torch_output(has_hook: str) -> dict[str, str]:
    """What the program with torch prints in each case: one run, since each imports torch."""
    cases = TORCH_CASES if on_demand.IS_SET else USUAL_TORCH_CASES
    code, text = outcome(Path(sys.executable), "hook_same_torch.py", has_hook, cases)
    assert code == 0, text
    parts = re.split(r"^case (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# Signals are also among the cases without torch.
@pytest.mark.xdist_group("torch_output")
@pytest.mark.parametrize("case", on_demand.cases(TORCH_CASES, USUAL_TORCH_CASES))
def test_a_torch_program_prints_raises_and_exits_the_same_with_the_hook(
    case: str,
) -> None:
    without, with_hook = torch_output("without")[case], torch_output("with")[case]

    assert without
    lines = difflib.unified_diff(without.splitlines(), with_hook.splitlines(), lineterm="")
    assert "\n".join(lines) == ""


@pytest.mark.parametrize("case", ["queues", "registered", "fork_errors", "commands", "quiet_end"])
@pytest.mark.parametrize(
    "python", [Path(sys.executable), *OTHERS[-1:]], ids=interpreters.version_of
)
def test_with_warnings_as_errors_and_all_checks_of_the_interpreter_on_it_is_the_same(
    python: Path, case: str
) -> None:
    assert difference(python, "hook_same.py", case, "-W", "error", "-X", "dev") == ""


@pytest.mark.skipif(not OTHERS, reason="pyenv has no interpreters here")
@pytest.mark.parametrize(
    ("python", "case"),
    [
        pytest.param(python, case, marks=() if case in usual else on_demand.ON_DEMAND)
        for python in OTHERS
        for usual in (USUAL_ON_THE_NEWEST if python == OTHERS[-1] else USUAL_ELSEWHERE,)
        for case in CASES
    ],
    ids=interpreters.name_of,
)
def test_on_other_pythons_too_a_program_prints_raises_and_ends_the_same(
    python: Path, case: str
) -> None:
    assert difference(python, "hook_same.py", case) == ""
