"""Runs healthy programs of other people's frameworks alone and under `mpwatch run`.

    python -m tests.frameworks                          # those that are installed here
    python -m tests.frameworks --python VENV/bin/python joblib gymnasium

It prints a table: the roles of all processes as mpwatch names them, in how many of the Python
processes the hook was attached, whether output and exit code were the same as without it, and the
warnings that mpwatch gave. The exit code is the number of programs for which something is wrong: an
output that differs, or a warning about a healthy program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mpwatch.collect.process.identify import CannotWatch, identify
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.sources.oneshot import LookOptions, watch_for
from mpwatch.report.table import Column, TextStyle, table

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 240.0


class Framework(NamedTuple):
    """A program of a framework."""

    name: str
    module: str
    """Module that has to be installed."""
    arguments: tuple[str, ...]
    """Arguments of the interpreter; `{}` is the folder of the programs."""


FRAMEWORKS = (
    Framework("torch.multiprocessing.spawn", "torch", ("{}/mp_spawn.py",)),
    Framework(
        "torchrun",
        "torch",
        ("-m", "torch.distributed.run", "--nproc-per-node", "2", "{}/ddp.py"),
    ),
    Framework("joblib", "joblib", ("{}/with_joblib.py",)),
    Framework("loky", "loky", ("{}/with_loky.py",)),
    Framework("ProcessPoolExecutor", "concurrent", ("{}/with_executor.py",)),
    Framework("gymnasium AsyncVectorEnv", "gymnasium", ("{}/with_gymnasium.py",)),
    Framework("Stable-Baselines3", "stable_baselines3", ("{}/with_sb3.py",)),
    Framework(
        "accelerate launch",
        "accelerate",
        (
            "-m", "accelerate.commands.launch", "--cpu", "--multi_cpu", "--num_processes", "2",
            "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "{}/ddp.py",
        ),
    ),
    Framework("Lightning ddp", "pytorch_lightning", ("{}/with_lightning.py", "ddp")),
    Framework("Lightning ddp_spawn", "pytorch_lightning", ("{}/with_lightning.py", "ddp_spawn")),
    Framework("datasets.map", "datasets", ("{}/with_datasets.py",)),
)  # fmt: skip


class Row(NamedTuple):
    """The result of one framework."""

    name: str
    roles: str
    hook: str
    is_same: bool
    warnings: tuple[str, ...]


def main() -> int:
    """Run all that are installed, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks")
    parser.add_argument("--python", default=sys.executable, help="with the frameworks installed")
    parser.add_argument("names", nargs="*", help="parts of names; all if none is given")
    options = parser.parse_args()
    rows = []
    for framework in FRAMEWORKS:
        if options.names and not any(each in framework.name for each in options.names):
            continue
        if not _is_installed(options.python, framework.module):
            print(f"{framework.name}: {framework.module} is not installed", file=sys.stderr)
            continue
        try:
            rows.append(_row(framework, options.python))
        except subprocess.TimeoutExpired as error:
            words = f"did not end within {error.timeout:.0f} s: {' '.join(error.cmd)}"
            rows.append(Row(framework.name, "", "", False, (words,)))
        print(f"{rows[-1].name}: {rows[-1].roles}", file=sys.stderr, flush=True)
    cells = [
        (row.name, row.roles, row.hook, "yes" if row.is_same else "NO", "; ".join(row.warnings))
        for row in rows
    ]
    titles = ("FRAMEWORK", "PROCESSES", "HOOK", "SAME RESULT", "WARNINGS")
    print("\n".join(table([Column(title) for title in titles], cells, TextStyle(width=240))))
    return sum(not row.is_same or bool(row.warnings) for row in rows)


def _is_installed(python: str, module: str) -> bool:
    text = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", text], check=False).returncode == 0


def _row(framework: Framework, python: str) -> Row:
    arguments = [part.format(PROGRAMS) for part in framework.arguments]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "PYTHONUNBUFFERED": "1"}
        alone = subprocess.run(
            [python, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=False,
        )
        is_module, rest = arguments[0] == "-m", arguments
        command = [python, str(_runner()), *(["-m", *rest[1:]] if is_module else rest)]
        seen = Seen()
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                seen.follow(process)
                output, _ = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
    is_same = _lines(output) == _lines(alone.stdout) and process.returncode == alone.returncode
    return Row(framework.name, seen.roles, seen.hook, is_same, tuple(sorted(seen.warnings)))


def _runner() -> Path:
    import mpwatch.hook

    return Path(mpwatch.hook.__file__).parent / "run.py"


def _lines(output: bytes) -> list[bytes]:
    """The result lines: ranks print in any order, and libraries print how long they took."""
    return sorted(line for line in output.splitlines() if line.startswith(b"result"))


class Seen:
    """What mpwatch showed of a program while it ran."""

    def __init__(self) -> None:
        self.roles = self.hook = ""
        self.warnings: set[str] = set()
        self._count = 0, 0

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Watch a program until it ends."""
        deadline_s = time.monotonic() + LIMIT_S
        try:
            root = identify(process.pid)
        except CannotWatch:
            return
        watch_for(
            root,
            LIMIT_S,
            LookOptions(),
            each=self._add,
            stop=lambda: time.monotonic() > deadline_s,
        )

    def _add(self, snapshot: Snapshot) -> None:
        self.warnings |= {
            f"{finding.rule}: {finding.summary}"
            for finding in snapshot.findings
            if finding.severity is not Severity.INFO
        }
        living = [each for each in snapshot.living() if each.sample.is_python]
        hooked = sum(each.hook.state == "ready" for each in living)
        if (len(living), hooked) >= self._count:
            self._count = len(living), hooked
            self.roles = _summary(living)
            self.hook = f"{hooked} of {len(living)}"


def _summary(living: Sequence[Process]) -> str:
    counts = Counter(each.label for each in living)
    return ", ".join(f"{count} {label}" if count > 1 else label for label, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
