"""What watching costs, beside what people use instead, on one tree in one run.

    python tests/benchmarks/watching.py [--workers 64] [--seconds 60] [--others 0]

Starts a DataLoader job, then the dashboard, `htop -d 10` (if it is installed) and a program that
does next to nothing (`watching_floor.py`) in terminals of 160 x 48 at the same time. From the first
painted tree on it measures for `--seconds` (the first minute), then for as long again (a calm job),
and prints cpu-seconds a second of each, their ratios to htop, and what each sends to its terminal;
after that the time from the command to the first painted tree and the wall time of
`dump --json --no-stacks`.

htop reads every process of the machine, kernel threads included, and mpwatch those of the job: how
many there are of both is printed as well, with the load of the machine. `--others` starts so many
idle processes besides.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
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
        """CPU time so far, with children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_S

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


def compare_cpu(pid, seconds):
    """CPU of the dashboard and of htop, side by side."""
    terminals = {}
    if shutil.which("htop"):
        terminals["htop -d 10"] = Terminal(["htop", "-d", "10"])
    floor = Path(__file__).with_name("watching_floor.py")
    terminals["floor"] = Terminal([sys.executable, str(floor), str(pid)])
    command = [sys.executable, "-m", "mpwatch", "attach", str(pid), "--no-hook"]
    terminals["mpwatch attach"] = Terminal(command)
    terminals["mpwatch attach"].until(b"worker 0")
    print("{} processes on the machine, {} of them of the job".format(*count_processes(pid)))
    for phase in ("first minute", "calm"):
        measure(phase, terminals, seconds)
    for terminal in terminals.values():
        terminal.end()


def measure(phase, terminals, seconds):
    """Print what each program uses and sends from now on for some seconds."""
    before = {name: (t.cpu_s(), t.sent_bytes) for name, t in terminals.items()}
    time.sleep(seconds)
    used = {name: (t.cpu_s() - before[name][0]) / seconds for name, t in terminals.items()}
    sent = {name: (t.sent_bytes - before[name][1]) / seconds for name, t in terminals.items()}
    print(f"{phase}, {seconds:.0f} s, load {os.getloadavg()[0]:.1f}")
    htop = used.get("htop -d 10")
    for name, share in used.items():
        ratio = "no htop to compare with" if htop is None else f"{share / htop:.2f} of htop"
        print(f"  {name:16} {share:.3f} cpu-s/s, {ratio}, {sent[name] / 1000:.1f} kB/s to terminal")


def first_paint(pid, times=5):
    """Median seconds from the command to the first painted tree."""
    took = []
    for _ in range(times):
        terminal = Terminal([sys.executable, "-m", "mpwatch", "attach", str(pid), "--no-hook"])
        seconds = terminal.until(b"worker 0")
        terminal.end()
        if seconds is not None:
            took.append(seconds)
    return statistics.median(took) if took else None


def dump_time(pid, times=5):
    """Median seconds of `mpwatch dump --json --no-stacks`."""
    took = []
    for _ in range(times):
        began_s = time.monotonic()
        command = [sys.executable, "-m", "mpwatch", "dump", str(pid), "--json", "--no-stacks"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        took.append(time.monotonic() - began_s)
    return statistics.median(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--others", type=int, default=0)
    arguments = parser.parse_args()
    # With it every start would compile all modules again, which is not what users have.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    job = start_job(arguments.workers)
    others = start_others(arguments.others) if arguments.others else None
    try:
        compare_cpu(job.pid, arguments.seconds)
        paint_s = first_paint(job.pid)
        print(f"{'first paint':16} {'never' if paint_s is None else f'{paint_s:.2f} s'}")
        print(f"{'dump':16} {dump_time(job.pid):.2f} s")
    finally:
        for each in (job, others):
            if each is not None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()


if __name__ == "__main__":
    main()
