"""The hook beside what people use instead, on one DataLoader program in one run.

    python -m tests.benchmarks.hook_rivals [ROUNDS]

viztracer, py-spy and memray are installed from PyPI into a folder that is thrown away; one that
cannot be is left out, with the reason. In each round the program runs once under each, in an order
that turns from round to round, and is compared with the run without anything in that round: the
wall time of a batch by the program's own clock, and the cpu time of the whole tree of processes,
the tool's own included, for the batches and everything around them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

from .hook_jobs import pictures
from .hook_turns import load, observe, spread

ROUNDS = 5
BATCHES = 300
JOB = ["-m", "tests.benchmarks.hook_rivals", "_job"]
DISTRIBUTIONS = ("viztracer", "memray", "py-spy")
LIMIT_S = 300


def job(hooked: bool) -> None:
    """Run as the program: print the seconds that a batch takes once the workers have started."""
    from torch.utils.data import DataLoader

    warnings.simplefilter("ignore")
    if hooked:
        import mpwatch

        mpwatch.instrument()
    loader = DataLoader(
        pictures(16 * BATCHES), batch_size=16, num_workers=2, multiprocessing_context="fork"
    )
    batches = iter(loader)
    next(batches)
    began = time.perf_counter()
    count = sum(1 for _ in batches)
    print(json.dumps({"batch_s": (time.perf_counter() - began) / count}), flush=True)


def commands(tools: Path, folder: Path) -> dict[str, list[str]]:
    """The command that starts the program under each installed tool."""
    python, out = sys.executable, str(folder / "out")
    found = {
        "nothing": [python, *JOB],
        "mpwatch, the hook alone": [python, *JOB, "hook"],
        "mpwatch, watched": [python, *JOB, "hook"],
    }
    if (tools / "viztracer/viztracer").is_dir():
        found["viztracer"] = [python, "-m", "viztracer", "--quiet", "-o", f"{out}.json", *JOB]
    if (tools / "memray/memray").is_dir():
        found["memray run --follow-fork"] = [
            *[python, "-m", "memray", "run", "--quiet", "--force", "--follow-fork"],
            *["-o", f"{out}.bin", *JOB],
        ]
    if (tools / "py-spy/bin/py-spy").exists():
        found["py-spy record --subprocesses"] = [
            *[str(tools / "py-spy/bin/py-spy"), "record", "--subprocesses", "--format", "raw"],
            *["-o", f"{out}.txt", "--", python, *JOB],
        ]
    return found


def install(tools: Path) -> None:
    """Install each tool that can be installed into a folder of its own."""
    for name in DISTRIBUTIONS:
        target = str(tools / name)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", target, name],
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            print(f"{name} is left out: {(done.stderr.splitlines() or ['pip failed'])[-1][:200]}")


def run(command: list[str], tools: Path, folder: Path, watched: bool) -> tuple[float, float] | str:
    """Run the program once.

    Returns:
        Seconds a batch and cpu seconds altogether, or why there are none.
    """
    path = ":".join([os.getcwd(), *(str(tools / name) for name in DISTRIBUTIONS)])
    environment = {**os.environ, "PYTHONPATH": path, "XDG_RUNTIME_DIR": str(folder)}
    stop = threading.Event()
    observer = threading.Thread(target=observe, args=(str(folder), stop))
    if watched:
        observer.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"took more than {LIMIT_S} s"
    finally:
        stop.set()
        if watched:
            observer.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = [line for line in done.stdout.splitlines() if line.startswith('{"batch_s"')]
    if not rows:
        return (done.stderr.splitlines() or [f"ended with {done.returncode}"])[-1][:200]
    return json.loads(rows[0])["batch_s"], cpu_s


def main() -> None:
    if sys.argv[1:2] == ["_job"]:
        job("hook" in sys.argv)
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        tools, work = Path(folder) / "tools", Path(folder) / "work"
        tools.mkdir()
        work.mkdir()
        install(tools)
        started = commands(tools, work)
        print(f"{rounds} rounds: {load()}")
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in started}
        for number in range(rounds):
            names = list(started)
            turned = names[number % len(names) :] + names[: number % len(names)]
            for name in turned:
                result = run(started[name], tools, work, name.endswith("watched"))
                if isinstance(result, str):
                    print(f"{name}: {result}")
                else:
                    taken[name].append(result)
        show(taken)


def show(taken: dict[str, list[tuple[float, float]]]) -> None:
    """Print the cost of each tool relative to the run without any, round by round."""
    bare = taken["nothing"]
    for name, rows in taken.items():
        if len(rows) != len(bare) or len(rows) < 2:
            continue
        pairs = list(zip(rows, bare, strict=True))
        wall = spread([row[0] / alone[0] for row, alone in pairs])
        cpu = spread([row[1] / alone[1] for row, alone in pairs])
        print(f"{name:30} batch {wall}, cpu of all {cpu} times")
    print(f"a batch under nothing, ms: {spread([row[0] * 1e3 for row in bare])}")


if __name__ == "__main__":
    main()
