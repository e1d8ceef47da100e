"""Breaks each invariant of the hook and of attach on purpose, and checks that its tests notice.

    python -m tests.mutations
    python -m tests.mutations --only 3 --only 8

It works on a copy of the package and of the tests: one mutation at a time, then the tests that are
named for it. Tests that pass all the same are a gap. The exit code is the number of such gaps.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.mutations.mutation import Mutation, mutate
from tests.mutations.table import INVARIANTS, TABLE

ROOT = Path(__file__).parents[2]
LIMIT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutations", description=__doc__)
    parser.add_argument("--only", type=int, action="append", choices=sorted(INVARIANTS))
    wanted = parser.parse_args().only or list(INVARIANTS)
    mutations = [each for each in TABLE if each.invariant in wanted]
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        copy = Path(name)
        _copy_into(copy)
        failed = _failures(copy, dict.fromkeys(test for each in mutations for test in each.tests))
        if failed:
            print(f"the tests fail without a mutation, so they prove nothing:\n{failed}")
            return 1
        gaps = 0
        for number in wanted:
            print(f"\n{number}. {INVARIANTS[number]}", flush=True)
            for each in (each for each in mutations if each.invariant == number):
                gaps += not _is_noticed(copy, each)
    print(f"\n{len(mutations)} mutations, {gaps} of them not noticed")
    return gaps


def _copy_into(copy: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("mpwatch", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)


def _is_noticed(copy: Path, mutation: Mutation) -> bool:
    """Whether the tests fail with this mutation; the file is restored afterwards."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutate(text, mutation), encoding="utf-8")
    try:
        is_noticed = bool(_failures(copy, mutation.tests))
    finally:
        path.write_text(text, encoding="utf-8")
    verdict = "noticed" if is_noticed else "NOT NOTICED"
    print(f"  {verdict}: {mutation.what} ({mutation.file})", flush=True)
    return is_noticed


def _failures(copy: Path, tests: Iterable[str]) -> str:
    """The end of pytest's output if tests fail on the copy, or nothing; one that hangs fails.

    Raises:
        RuntimeError: The tests could not be run.
    """
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    try:
        done = subprocess.run(
            [*command, f"--timeout={LIMIT_S}", *tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=10 * LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "they hang"
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout[-3000:])
    return done.stdout[-1000:] if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
