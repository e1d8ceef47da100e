"""Diagnose programs whose authors had not seen the rules; the answers are judged by reading.

    python -m tests.benchmarks.blind OUT                       all programs of the first set
    python -m tests.benchmarks.blind OUT --set tests/programs/blind_2 --jobs 2
    python -m tests.benchmarks.blind OUT 04_vecppo 12_prepcache

Each program runs twice: alone, with `diagnose PID --no-hook` after 15 s (`NAME.outside.txt`), and
under `mpwatch run --headless --record`, of which the first 55 s are diagnosed
(`NAME.recording.txt`). Beside each program lies `truth.json`: the public thread that it was
written after, the kind of failure, the true cause, and how the answers of the first look at it were
judged, before anything was changed because of them:

    right    the true cause, at the right process, and nothing false in it
    half     the right symptom or rule, but incomplete, or something false in cause or fix
    wrong    another cause
    silent   nothing
    clean    a healthy program without a warning

A known set says how later versions compare; a new figure needs a new set.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FIRST_SET = Path(__file__).parents[1] / "programs" / "blind_1"
OUTSIDE_AFTER_S = 15.0
RECORDED_S = 55.0
LIMIT_S = 150.0


def started(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A program in a session of its own."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def diagnosis(*arguments: str) -> str:
    """What `mpwatch diagnose` prints, and how long it took."""
    began_s = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mpwatch", "diagnose", *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_S:.0f} s\n"
    took_s = time.monotonic() - began_s
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode} after {took_s:.0f} s\n"


def end(program: subprocess.Popen[bytes], folder: Path) -> None:
    """End a program with all that runs in its folder: descendants may have left its session."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd").startswith(str(folder)):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue  # it has exited, or belongs to another user
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def absent(source: Path) -> list[str]:
    """The frameworks that a program imports and that are not installed."""
    needs = json.loads((source / "truth.json").read_text()).get("needs", [])
    return [name for name in needs if importlib.util.find_spec(name) is None]


def ask(source: Path, out: Path) -> str:
    """Run one program twice and write the two answers."""
    truth = json.loads((source / "truth.json").read_text())
    command = [sys.executable, *truth.get("command", ["python", "main.py"])[1:]]
    for way in ("outside", "recording"):
        folder = Path(tempfile.mkdtemp(prefix="blind-"))
        copy = folder / source.name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("truth.json"))
        log = out / f"{source.name}.{way}.log"
        if way == "outside":
            program = started(command, copy, log)
            time.sleep(OUTSIDE_AFTER_S)
            answer = diagnosis(str(program.pid), "--no-hook")
        else:
            file = str(folder / "job.mpw")
            run = [sys.executable, "-m", "mpwatch", "run", "--headless", "--record", file]
            program = started([*run, *command[1:]], copy, log)
            time.sleep(RECORDED_S)
            shutil.copy(file, f"{file}.copy")
            answer = diagnosis(f"{file}.copy")
        (out / f"{source.name}.{way}.txt").write_text(answer)
        end(program, folder)
        shutil.rmtree(folder, ignore_errors=True)
    return source.name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="programs; all of the set without")
    parser.add_argument("--set", type=Path, default=FIRST_SET, dest="folder")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_intermixed_args()  # names may follow an option
    arguments.out.mkdir(parents=True, exist_ok=True)
    programs = sorted(path.parent for path in arguments.folder.glob("*/truth.json"))
    chosen = [each for each in programs if not arguments.names or each.name in arguments.names]
    for program in [*chosen]:
        missing = absent(program)
        if missing:
            print(f"{program.name} is left out: it needs {', '.join(missing)}", flush=True)
            chosen.remove(program)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for name in pool.map(lambda each: ask(each, arguments.out), chosen):
            print(name, flush=True)


if __name__ == "__main__":
    main()
