"""What watching costs, beside what people use instead, on one tree in one run.

    python tests/benchmarks/watching.py [--workers 64] [--seconds 60] [--others 0] [--rounds 5]
                                        [--beside NAME=PYTHON]...

Starts a DataLoader job, then the dashboard, `htop -d 10` (if it is installed) and a program that
does next to nothing (`watching_floor.py`) in terminals of 160 x 48 at the same time. From the first
painted tree on it measures for `--seconds` (the first minute), then for as long again (a calm job),
and prints cpu-seconds a second of each, their ratios to htop, and what each sends to its terminal;
after that the time from the command to the first painted tree and the wall time of
`dump --json --no-stacks`.

htop reads every process of the machine, kernel threads included, and mpwatch those of the job: how
many there are of both is printed as well, with the load of the machine. `--others` starts so many
idle processes besides. `--beside` names the interpreter of an environment with another version of
mpwatch: its dashboard watches the same job at the same time, and its starts are measured in turn
with those of this version.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import resource
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "programs"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Terminal:
    """A program in a pseudo-terminal whose output is read and thrown away."""

    def __init__(self, command, rows=48, columns=160):
        self.began_s = time.monotonic()
        self.seen = b""
        self.sent_bytes = 0
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execvp(command[0], command)
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self._marks = {}
        self._words = {}
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, word, deadline_s=30.0):
        """Seconds from the start of the program until a word is painted."""
        mark = self._words.setdefault(word, threading.Event())
        if not mark.wait(deadline_s):
            return None
        return self._marks[word] - self.began_s

    def cpu_s(self):
        """User and system time so far, with children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        user, system, *of_children = (int(field) / TICKS_PER_S for field in fields[11:15])
        return user + of_children[0], system + of_children[1]

    def end(self):
        """Kill the program."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _read(self):
        while True:
            try:
                select.select([self._master], [], [])
                chunk = os.read(self._master, 65536)
                self.sent_bytes += len(chunk)
                self.seen = (self.seen + chunk)[-200_000:]
            except OSError:
                return
            for word, mark in list(self._words.items()):
                if not mark.is_set() and word in self.seen:
                    self._marks[word] = time.monotonic()
                    mark.set()


def start_job(workers):
    """Start a mostly idle DataLoader job, and wait until all workers have sent a batch."""
    job = subprocess.Popen(
        [sys.executable, PROGRAMS / "loader.py", str(workers), "fork", "--pause", "1.0"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert job.stdout is not None
    for line in job.stdout:
        if line.startswith("ready"):
            return job
    raise SystemExit("the job ended before it was ready")


def start_others(count):
    """Start processes outside of the job: one that forks, and its children."""
    code = (
        f"import os\nfrom signal import pause\nfor _ in range({count - 1}): os.fork() or pause()\n"
    )
    return subprocess.Popen([sys.executable, "-c", code + "pause()"], start_new_session=True)


def count_processes(pid):
    """How many processes the machine has, and how many of them are of the job."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(name.name.isdecimal() for name in Path("/proc").iterdir()), 1 + len(children)


def compare_cpu(pid, seconds, versions):
    """CPU of the dashboards and of htop, side by side."""
    terminals = {}
    if shutil.which("htop"):
        terminals["htop -d 10"] = Terminal(["htop", "-d", "10"])
    floor = Path(__file__).with_name("watching_floor.py")
    terminals["floor"] = Terminal([sys.executable, str(floor), str(pid)])
    dashboards = {name: Terminal(attach(python, pid)) for name, python in versions.items()}
    for dashboard in dashboards.values():
        dashboard.until(b"worker 0")
    terminals.update(dashboards)
    print("{} processes on the machine, {} of them of the job".format(*count_processes(pid)))
    for phase in ("first minute", "calm"):
        measure(phase, terminals, seconds)
    for terminal in terminals.values():
        terminal.end()


def measure(phase, terminals, seconds):
    """Print what each program uses and sends from now on for some seconds."""
    before = {name: (t.cpu_s(), t.sent_bytes) for name, t in terminals.items()}
    time.sleep(seconds)
    after = {name: (t.cpu_s(), t.sent_bytes) for name, t in terminals.items()}
    print(f"{phase}, {seconds:.0f} s, load {os.getloadavg()[0]:.1f}")
    shares = {
        name: [
            (now - then) / seconds
            for now, then in zip(after[name][0], before[name][0], strict=True)
        ]
        for name in terminals
    }
    htop = sum(shares["htop -d 10"]) if "htop -d 10" in shares else None
    for name, (user, system) in shares.items():
        share = user + system
        ratio = "no htop to compare with" if htop is None else f"{share / htop:.2f} of htop"
        sent = (after[name][1] - before[name][1]) / seconds
        print(
            f"  {name:16} {share:.4f} cpu-s/s ({user:.4f} user, {system:.4f} system), {ratio}, "
            f"{sent / 1000:.1f} kB/s to terminal"
        )


def attach(python, pid):
    """The command of a dashboard."""
    return [python, "-m", "mpwatch", "attach", str(pid), "--no-hook"]


def first_paint(python, pid):
    """Seconds from the command to the first painted tree, and None for its cpu."""
    terminal = Terminal(attach(python, pid))
    seconds = terminal.until(b"worker 0")
    terminal.end()
    return seconds, None


def timed(python, *arguments):
    """Wall and cpu seconds of a command."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began_s, cpu_s


def dump_time(python, pid):
    """Wall and cpu seconds of `mpwatch dump --json --no-stacks`."""
    return timed(python, "-m", "mpwatch", "dump", str(pid), "--json", "--no-stacks")


def compare_starts(pid, versions, rounds):
    """Median and best of what starts, the versions in turn."""
    starts = {"first paint": first_paint, "dump": dump_time}
    took: dict[tuple[str, str], list[tuple[float | None, float | None]]] = {
        (what, name): [] for what in starts for name in versions
    }
    for _ in range(rounds):
        for what, start in starts.items():
            for name, python in versions.items():
                took[what, name].append(start(python, pid))
    print(f"{rounds} starts each, load {os.getloadavg()[0]:.1f}: median and best")
    for (what, name), times in took.items():
        wall, cpu = (
            [value for value in values if value is not None] for values in zip(*times, strict=True)
        )
        words = [
            f"{statistics.median(values):.3f}, {min(values):.3f} s {kind}"
            for kind, values in (("wall", wall), ("cpu", cpu))
            if values
        ]
        print(f"  {what:12} {name:16} {'; '.join(words) or 'never'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--others", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=PYTHON")
    arguments = parser.parse_args()
    versions = {"mpwatch": sys.executable}
    versions.update(each.split("=", 1) for each in arguments.beside)
    versions = {name: os.path.abspath(python) for name, python in versions.items()}
    # `python -m` looks for mpwatch in the working directory first: in that of a checkout, each
    # version would be the one of the checkout.
    os.chdir("/")
    # With it every start would compile all modules again, which is not what users have.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    job = start_job(arguments.workers)
    others = start_others(arguments.others) if arguments.others else None
    try:
        if arguments.seconds:
            compare_cpu(job.pid, arguments.seconds, versions)
        if arguments.rounds:
            compare_starts(job.pid, versions, arguments.rounds)
    finally:
        for each in (job, others):
            if each is not None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()


if __name__ == "__main__":
    main()
