"""Coverage-guided fuzzing of everything that is read from other processes and from files.

    TMPDIR=/dev/shm python -m tests.endurance.fuzz --inputs 1000000
    python -m tests.endurance.fuzz --inputs 50000 ring recording

Takes `pip install atheris`, which has wheels for CPython 3.10 to 3.14 on x86-64 (November 2026);
without it `MPWATCH_FUZZ_EXAMPLES` makes the fuzz tests of hypothesis longer. Each target is a
process of its own with its share of the inputs. It may raise what the parser documents and nothing
else, takes 100 s for an input at most, and 1 GiB of memory. An input that breaks this is kept
in the folder that is printed; `--again FILE TARGET` reads it once more. The exit code is the number
of targets that failed, 2 without atheris.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = (
    "wire", "requests", "ring", "recording", "recorded-lines", "procfs", "py-spy",
    "command-lines", "environments", "text", "reports", "elf", "node-messages", "opened-jobs",
    "nccl-ras", "flight-recorder", "written-errors", "gpus",
)  # fmt: skip
SECONDS_LIMIT, MEMORY_LIMIT_MIB, INPUT_BYTES = 100, 1024, 4096
"""libFuzzer counts the time on the wall: at a load of 30, an input that takes less than 2 s of cpu
with all imports took more than ten."""
_RUNS = re.compile(r"Done (\d+) runs")


def run(names: tuple[str, ...], inputs: int) -> int:
    """Fuzz each target in a process of its own and print the figures; how many failed."""
    share, failed, total, began_s = -(-inputs // len(names)), 0, 0, time.monotonic()
    for name in names:
        with tempfile.TemporaryDirectory(prefix="mpwatch-fuzz-") as folder:
            tried, problem = run_one(name, share, Path(folder))
        total += tried
        if problem:
            failed += 1
            print(f"FAILED, {problem}", flush=True)
    took_s = time.monotonic() - began_s
    print(
        f"{total} inputs in {took_s:.0f} s, load {os.getloadavg()[0]:.1f}; {failed} targets failed"
    )
    return failed


def run_one(name: str, share: int, folder: Path) -> tuple[int, str]:
    """Fuzz one target; how many inputs were tried, and what failed, for which they are kept."""
    (folder / "corpus").mkdir()
    command = [sys.executable, "-m", "tests.endurance.fuzz", "--one", name, str(folder)]
    began_s = time.monotonic()
    done = subprocess.run(
        [*command, "--inputs", str(share)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = done.stdout.decode(errors="replace")
    found = _RUNS.search(said)
    tried = int(found[1]) if found else 0
    print(f"{name:<16} {tried:>9} inputs in {time.monotonic() - began_s:4.0f} s", flush=True)
    if not done.returncode and tried >= share:
        return tried, ""
    kept = tempfile.mkdtemp(prefix=f"mpwatch-fuzz-{name}-")
    for path in filter(Path.is_file, folder.iterdir()):
        shutil.copy(path, kept)
    return tried, f"kept in {kept}; it ends with:\n{said[-2000:]}"


def fuzz_one(name: str, folder: Path, inputs: int) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    atheris = importlib.import_module("atheris")  # a tool that the project does not depend on
    import mpwatch.hook.requests  # without probes: it marshals its own code
    import mpwatch.hook.transport.connection  # noqa: F401

    # libFuzzer ends the process without `atexit`, so what it leaves goes with this folder.
    tempfile.tempdir = str(folder)
    with atheris.instrument_imports(include=["mpwatch"]):
        from tests.endurance.fuzz_targets import TARGETS
    target = TARGETS[name]
    for number, sample in enumerate(target.samples()):
        (folder / "corpus" / f"sample-{number}").write_bytes(sample)
    limits = [
        f"-runs={inputs}",
        f"-timeout={SECONDS_LIMIT}",
        f"-rss_limit_mb={MEMORY_LIMIT_MIB}",
        f"-max_len={INPUT_BYTES}",
        f"-artifact_prefix={folder}/",
    ]
    atheris.Setup([sys.argv[0], *limits, str(folder / "corpus")], target.read)
    atheris.Fuzz()


def _end(*_: object) -> None:
    """End what runs, and remove temporary folders; a second signal must not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.endurance.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--again", type=Path, metavar="FILE", help="one input that failed")
    parser.add_argument("--one", nargs=2, metavar=("TARGET", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = tuple(arguments.targets) or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    if arguments.one is not None:
        fuzz_one(arguments.one[0], Path(arguments.one[1]), arguments.inputs)
        return 0
    signal.signal(signal.SIGTERM, _end)
    if arguments.again is not None:
        from tests.endurance.fuzz_targets import TARGETS

        for name in names:
            TARGETS[name].read(arguments.again.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("coverage-guided fuzzing takes: pip install atheris", file=sys.stderr)
        return 2
    return run(names, arguments.inputs)


if __name__ == "__main__":
    sys.exit(main())
