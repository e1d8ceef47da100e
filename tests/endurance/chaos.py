"""Jobs under every start method, while observers come, stall, are stopped and are killed at random.

    python -m tests.endurance.chaos --rounds 1000 --jobs 2
    python -m tests.endurance.chaos --rounds 1 --seed 4711     # a round that failed, once more

A round runs `tests/programs/chaos_job.py` with everything below done to it at random moments. Its
output, errors and exit code must be those of the same job alone, it must end in time, and no
process, segment or file may be left but those of processes that were killed. Of a round that does
not end, the stacks, the output and the hooks' files are kept. Ten successive seeds have the same
job, which runs alone once for each strategy of sharing and number of steps.

The seed fixes what is done, in which order, and after which line of the job's output. How long
after the line is a time, and a step that takes longer gets more of it, so a machine at another
speed does not repeat a round exactly.

- mpwatch injects the hook, dumps, diagnoses, records and detaches; it is left alone, stopped for a
  while, or killed by SIGTERM or SIGKILL.
- Clients connect to the hooks' sockets and read, stall, send garbage, or close in mid-frame.
- The runtime directory is removed, its file system filled, /dev/shm filled but for what the
  job needs.
- Workers die of all signals that end a process by default, the real-time ones included.
- Pids are reused at once. The job is stopped and continued, and gets signals that it handles.
- In some rounds the job may open few descriptors, and has the hook from its start.
- Between two of its steps the job may start no further thread or process (`pids.max` of a control
  group), or may map hardly more memory (RLIMIT_AS), while mpwatch injects and detaches. The job
  rests then, because at a limit that it hits itself it would also fail alone. Observers have such
  limits at any time.
- In some rounds the wall clock of job and observers jumps by an hour back and forth
  several times a second (a library in LD_PRELOAD, if there is a C compiler; no clock of the machine
  is set), CLOCK_MONOTONIC and CLOCK_BOOTTIME are days ahead of each other (a time
  namespace), and some observers are in another time namespace than the job.

Each round has mount, pid and IPC namespaces of its own, which takes root. The exit code is 1 if a
round failed, 2 if none could run. What a machine does not have (control groups that can be
written, a compiler) is left out, and the counts at the end show it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, Any, NamedTuple

from mpwatch.attach.payload.exchange_dir import COPY_PREFIX
from tests.conftest import PROGRAMS

STEPS = 16
STEPS_WITH_IMPORTS = 8
"""Where each new process imports torch, which takes 1.4 s of a core and was 20 times in 16 steps.

A round under forkserver took 42 s of processor time with 16 steps and 28 s with 8 (a round that
forks: 7 s), and half as many steps still see several times the disturbances of one that forks.
"""
JOB_WITHIN_S = 600.0
"""For a job of 4 to 30 s on an idle machine: this long only if something hangs."""
LEFT_WITHIN_S = 30.0
OBSERVERS_WITHIN_S = 60.0
ROUND_WITHIN_S = 2 * JOB_WITHIN_S + 5 * OBSERVERS_WITHIN_S
RUNTIME_BYTES = 32 << 20
SHM_BYTES = 256 << 20
SHM_NEEDED_BYTES = 64 << 20
"""What is left free of /dev/shm for the job."""
FEW_DESCRIPTORS = 96
PAUSE_S = 0.4
"""The longest time between two disturbances."""
ROUNDS_OF_A_JOB = 10
METHODS = ["fork"] * 6 + ["forkserver", "forkserver+torch", "spawn"]
"""With `forkserver+torch`, the forkserver has imported torch before it forks."""
STRATEGIES = ["file_descriptor", "file_system"]
RUNTIME = Path("/run/chaos")
SPARE_RUNTIME = Path("/tmp/mpwatch-0")
"""Where hooks have their files while the runtime directory takes none."""
HOLD = Path("/run/chaos-hold")
HELD_WITHIN_S = 5.0
LIMITED_WITHIN_S = 20.0
REMOVED_WITHIN_S = 30.0
MIB = 1 << 20
PIDS_GROUPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Control groups with a limit of pids, version 1 and 2."""
FAR_S = 5 * 86400
STARTS_A_THREAD = re.compile(r"wait +threading\.py:\d+\n +start +threading\.py:")
"""Thread.start waits for ever for a thread that had no memory to begin (python/cpython#140746)."""
JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <time.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <unistd.h>

static long offset(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_nsec / 250000000 % 2 ? 3600 : -3600;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && clock == CLOCK_REALTIME) at->tv_sec += offset();
    return result;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""
NAMESPACES = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]


class Alone(NamedTuple):
    """What a job does undisturbed: the same under every start method."""

    code: int
    output: bytes
    errors: bytes
    segments: int
    """How many workers that died have left in /dev/shm."""

    @classmethod
    def read(cls, path: Path) -> Alone | None:
        """What `write` has written; `None` if it has not."""
        try:
            code, output, errors, segments = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(code, base64.b64decode(output), base64.b64decode(errors), segments)

    def write(self, path: Path) -> None:
        """Keep it for other rounds."""
        texts = (base64.b64encode(each).decode() for each in (self.output, self.errors))
        written = path.with_name(f"{path.name}.{os.getppid()}.{time.monotonic_ns()}")
        written.write_text(json.dumps([self.code, *texts, self.segments]))
        written.replace(path)


class JobOutput:
    """What a job has written so far, read by threads of its own."""

    def __init__(self, job: subprocess.Popen[bytes]) -> None:
        self._job = job
        self.lines: list[bytes] = []
        self.errors = b""
        self._has_changed = threading.Condition()
        assert job.stdout is not None
        assert job.stderr is not None
        self._threads = [
            threading.Thread(target=self._read_lines, args=(job.stdout,)),
            threading.Thread(target=self._read_errors, args=(job.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def _read_lines(self, stream: IO[bytes]) -> None:
        for line in stream:
            with self._has_changed:
                self.lines.append(line)
                self._has_changed.notify_all()

    def _read_errors(self, stream: IO[bytes]) -> None:
        self.errors = stream.read()

    @property
    def text(self) -> bytes:
        return b"".join(self.lines)

    def is_going_on(self) -> bool:
        """Whether the job may write more."""
        return any(thread.is_alive() for thread in self._threads)

    def wait_for_line(self, number: int, timeout_s: float) -> bool:
        """Whether there are more lines than this number before the timeout or the end."""
        deadline_s = time.monotonic() + timeout_s
        with self._has_changed:
            while len(self.lines) <= number:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._threads[0].is_alive():
                    return False
                self._has_changed.wait(min(left_s, 0.05))
        return True

    def end(self, timeout_s: float) -> int | None:
        """Wait for the end of the job; its exit code."""
        for thread in self._threads:
            thread.join(timeout_s)
        return self._job.wait(timeout_s)


class Round:
    """One job under chaos, inside the namespaces."""

    def __init__(self, seed: int, results: Path) -> None:
        """Choose what the round is.

        Args:
            seed: Of the round.
            results: Folder with what jobs do alone.
        """
        self.seed = seed
        self.job_seed = seed // ROUNDS_OF_A_JOB
        self.results = results
        self.dice = random.Random(seed)
        self.method = self.dice.choice(METHODS)
        self.strategy = self.dice.choice(STRATEGIES)
        self.steps = STEPS_WITH_IMPORTS if self.method in ("forkserver", "spawn") else STEPS
        self.is_hooked = self.dice.random() < 0.4
        self.has_few_descriptors = self.dice.random() < 0.3
        self.has_jumping_clock = self.dice.random() < 0.3
        self.group = pids_group(seed)
        self.observers: list[subprocess.Popen[bytes]] = []
        self.starved: set[subprocess.Popen[bytes]] = set()
        """Observers that may map little memory."""
        self.clients: list[socket.socket] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._line = 0
        """How many lines the job had written at the last disturbance."""
        self.signals: list[int] = []
        """Those that workers died of in the run alone."""
        self.has_killed = False
        """An observer was killed by SIGKILL."""

    def run(self) -> None:
        """Run the job under chaos, and compare it with the same job alone."""
        alone = self._job_alone()
        self.signals = signals_in(alone.output)
        segments = set(os.listdir("/dev/shm"))
        job = self._start(self.method, self.is_hooked)
        output = JobOutput(job)
        if self.has_jumping_clock:
            self.counts["jumping wall clock"] += "LD_PRELOAD" in self._environment()
        self.counts["time namespace"] += is_far_ahead(self.seed)
        deadline_s = time.monotonic() + JOB_WITHIN_S
        for dice, line in self._moments():
            self.dice = dice
            is_over = output.wait_for_line(line, self.dice.random() * PAUSE_S)
            if job.poll() is not None:  # what it has left may hold its output open for ever
                deadline_s = min(deadline_s, time.monotonic() + LEFT_WITHIN_S)
            if not output.is_going_on() or time.monotonic() > deadline_s:
                break
            if not is_over:
                self._disturb(job.pid)
            self._line = len(output.lines)
        if output.is_going_on():
            stacks = stacks_of(job.pid)
            kill_all_but(os.getpid())
            output.end(OBSERVERS_WITHIN_S)
            kept = self._keep(stacks, output)
            self.faults.append(f"it did not end (exit code {job.poll()}); more in {kept}: {stacks}")
            return
        found = (output.end(OBSERVERS_WITHIN_S), output.text, without_pids(output.errors))
        if found != alone[:3]:
            self.faults.append(
                f"alone it gave {alone[:3]}, now {found}; its errors end with"
                f" {output.errors[-2000:]!r}; all of them are in {self._keep('', output)}"
            )
        self._wait_for_observers()
        self._look_for_remains(output.errors)
        # Workers that died leave segments also in the run alone, and as many of them.
        left = [name for name in os.listdir("/dev/shm") if name not in segments]
        if len(left) > alone.segments:
            self.faults.append(f"/dev/shm has {left} more, and {alone.segments} of the run alone")

    def _moments(self) -> Iterator[tuple[random.Random, int]]:
        """The dice of each disturbance, and after how many lines of the job it is.

        Dice of its own for each: what one of them finds changes nothing in the next.
        """
        line = number = 0
        while True:
            yield random.Random(f"{self.seed} {line} {number}"), line
            number = number + 1 if line == self._line else 0
            line = self._line

    def _keep(self, stacks: str, output: JobOutput) -> Path:
        """Keep what there is of a round that failed; the folder it is in."""
        folder = Path(tempfile.mkdtemp(prefix=f"mpwatch-chaos-{self.seed}-"))
        (folder / "stacks").write_text(stacks)
        (folder / "output").write_bytes(output.text)
        (folder / "errors").write_bytes(output.errors)
        shutil.copytree(
            RUNTIME, folder / "runtime", ignore=lambda _, names: [n for n in names if ".sock" in n]
        )
        return folder

    def _job_alone(self) -> Alone:
        """What the job does undisturbed, from an earlier round if one has had this job."""
        path = self.results / f"{self.job_seed}-{self.strategy}-{self.steps}"
        found = Alone.read(path)
        if found is not None:
            return found
        job = self._start("fork", is_hooked=False, rests=False)
        output, errors = job.communicate(timeout=JOB_WITHIN_S)
        left = os.listdir("/dev/shm")
        found = Alone(job.returncode, output, without_pids(errors), len(left))
        found.write(path)
        return found

    def _start(
        self, method: str, is_hooked: bool, *, rests: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start the job; if it rests between its steps, it may be held there."""
        runner = ["-m", "mpwatch", "run", "--headless"] if is_hooked else []
        program = [
            str(PROGRAMS / "chaos_job.py"),
            str(self.job_seed),
            method,
            self.strategy,
            str(self.steps),
        ]

        def prepare() -> None:
            if self.has_few_descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, FEW_DESCRIPTORS))
            if self.group is not None:
                (self.group / "job" / "cgroup.procs").write_text("0")

        return subprocess.Popen(
            [sys.executable, *runner, *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment(), **({"CHAOS_HOLD": str(HOLD)} if rests else {})},
            preexec_fn=prepare,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        """The environment of job and observers."""
        library = Path(tempfile.gettempdir(), "mpwatch-chaos-clock.so")
        if not self.has_jumping_clock or not library.exists():
            return dict(os.environ)
        return {**os.environ, "LD_PRELOAD": str(library)}

    def _disturb(self, pid: int) -> None:
        """Disturb the job or its observers once."""
        disturbances: list[Callable[[int], None]] = [
            *[self._observe] * 4,
            *[self._torment_observer] * 3,
            *[self._connect] * 2,
            self._remove_runtime_directory,
            self._fill_runtime_directory,
            self._fill_shm,
            self._reuse_pids,
            self._stop,
            self._signal,
            *[self._observe_at_a_limit] * 2,
            self._limit_observers,
        ]
        what = self.dice.choice(disturbances)
        self.counts[what.__name__.strip("_")] += 1
        with contextlib.suppress(ProcessLookupError):
            what(pid)

    def _observe(self, pid: int) -> None:
        """Start a command of mpwatch on the job."""
        if sum(each.poll() is None for each in self.observers) >= 3:
            return
        number = len(self.observers)
        command = self.dice.choice(
            [
                ["dump", str(pid), "--hook", "--json"],
                ["dump", str(pid), "--hook", "--keep", "--no-stacks"],
                ["diagnose", str(pid), "--for", "1", "--hook", "--keep"],
                ["record", str(pid), "--for", "1", "--hook", "-o", f"/run/chaos-{number}.mpw"],
                ["detach", str(pid)],
            ]
        )
        elsewhere = ["unshare", "--time", "--boottime", str(FAR_S), "--fork", "--kill-child"]
        is_elsewhere = self.dice.random() < 0.1
        self.counts["in another time namespace"] += is_elsewhere
        self._start_observer(command, elsewhere if is_elsewhere else [])

    def _start_observer(
        self, command: list[str], runner: list[str], room_bytes: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start mpwatch; `room_bytes` limits the memory that it may map."""

        def prepare() -> None:
            if room_bytes is not None:
                resource.setrlimit(resource.RLIMIT_AS, (room_bytes, room_bytes))
            if self.group is not None:
                (self.group / "observers" / "cgroup.procs").write_text("0")

        popen = subprocess.Popen(
            [*runner, sys.executable, "-m", "mpwatch", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
            preexec_fn=prepare,
            start_new_session=True,
        )
        self.observers.append(popen)
        return popen

    def _observe_at_a_limit(self, pid: int) -> None:
        """Inject or detach while the job, between two steps, may start or map nothing more."""
        Path(f"{HOLD}-held").unlink(missing_ok=True)
        HOLD.touch()
        try:
            deadline_s = time.monotonic() + HELD_WITHIN_S
            while not Path(f"{HOLD}-held").exists():
                if time.monotonic() > deadline_s or not command_line(pid):
                    return
                time.sleep(0.02)
            lift = self._limit_job(pid)
            try:
                command = self.dice.choice(
                    [["dump", str(pid), "--hook", "--keep", "--no-stacks"], ["detach", str(pid)]]
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._start_observer(command, []).wait(LIMITED_WITHIN_S)
            finally:
                lift()
        finally:
            HOLD.unlink()

    def _limit_job(self, pid: int) -> Callable[[], None]:
        """Limit the pids or the memory of the job; the function that lifts the limit."""
        if self.group is not None and self.dice.random() < 0.5:
            self.counts["pid limit of the job"] += 1
            return limit_pids(self.group / "job")
        self.counts["memory limit of the job"] += 1
        room = self.dice.choice([0, 4, 16, 34, 50, 200]) * MIB
        limited = []
        for each in session_of(pid):
            with contextlib.suppress(OSError, ValueError):
                old = resource.prlimit(each, resource.RLIMIT_AS)
                size = int(Path(f"/proc/{each}/statm").read_text().split()[0]) * 4096
                resource.prlimit(each, resource.RLIMIT_AS, (size + room, old[1]))
                limited.append((each, old))

        def lift() -> None:
            for each, old in limited:
                with contextlib.suppress(OSError):
                    resource.prlimit(each, resource.RLIMIT_AS, old)

        return lift

    def _limit_observers(self, pid: int) -> None:
        """Let the running observers start nothing more for a moment, or one map little memory."""
        if self.group is not None and self.dice.random() < 0.5:
            self.counts["pid limit of observers"] += 1
            lift = limit_pids(self.group / "observers")
            time.sleep(self.dice.random() * 0.5)
            lift()
            return
        self.counts["memory limit of an observer"] += 1
        room = self.dice.choice([60, 120, 250, 500]) * MIB
        self.starved.add(self._start_observer(["dump", str(pid), "--hook", "--keep"], [], room))

    def _torment_observer(self, _pid: int) -> None:
        """Stop a running observer for a moment, or kill it with SIGKILL."""
        alive = [each for each in self.observers if each.poll() is None]
        if not alive:
            return
        popen = self.dice.choice(alive)
        number = self.dice.choice([signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
        popen.send_signal(number)
        self.has_killed |= number == signal.SIGKILL
        if number == signal.SIGSTOP:
            time.sleep(self.dice.random() * 0.5)
            popen.send_signal(signal.SIGCONT)

    def _connect(self, _pid: int) -> None:
        """Connect to a hook as a client that misbehaves."""
        sockets = list(RUNTIME.glob("mpwatch/*.sock"))
        if not sockets:
            return
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(0.2)
        with contextlib.suppress(OSError):
            client.connect(str(self.dice.choice(sockets)))
            client.send(self.dice.randbytes(self.dice.choice([1, 5, 4000])))
            client.recv(self.dice.choice([1, 100, 65536]))
        if self.dice.random() < 0.5:
            client.close()
        else:
            self.clients.append(client)  # it does not read until the end

    def _remove_runtime_directory(self, _pid: int) -> None:
        shutil.rmtree(RUNTIME / "mpwatch", ignore_errors=True)

    def _fill_runtime_directory(self, _pid: int) -> None:
        fill(RUNTIME / "filler", leave_bytes=0)
        time.sleep(self.dice.random() * 0.5)
        (RUNTIME / "filler").unlink()

    def _fill_shm(self, _pid: int) -> None:
        fill(Path("/dev/shm/filler"), leave_bytes=SHM_NEEDED_BYTES)
        time.sleep(self.dice.random() * 0.5)
        Path("/dev/shm/filler").unlink()

    def _reuse_pids(self, pid: int) -> None:
        """Make the kernel give out the pids that have just become free."""
        with contextlib.suppress(OSError):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid))

    def _stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.dice.random() * 0.3)
        os.kill(pid, signal.SIGCONT)

    def _signal(self, pid: int) -> None:
        """Send a signal that the job handles, once it does."""
        if self._handles(pid, signal.SIGUSR1):
            os.kill(pid, signal.SIGUSR1)

    def _handles(self, pid: int, number: int) -> bool:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def _wait_for_observers(self) -> None:
        """Wait until all observers have exited by themselves after the job."""
        deadline_s = time.monotonic() + OBSERVERS_WITHIN_S
        for popen in self.observers:
            try:
                popen.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                stacks = stacks_of(popen.pid)
                if popen in self.starved and STARTS_A_THREAD.search(stacks):
                    self.counts["hangs of an observer in Thread.start"] += 1
                    popen.kill()
                    self.has_killed = True
                    continue
                self.faults.append(f"an observer hangs: {popen.args!r}: {stacks}")
        for client in self.clients:
            client.close()

    def _look_for_remains(self, errors: bytes) -> None:
        """Processes, and files of processes that were not killed."""
        deadline_s = time.monotonic() + 10
        while (left := others()) and time.monotonic() < deadline_s:
            time.sleep(0.1)  # torch_shm_manager notices the end of its clients after a moment
        for pid in left:
            self.faults.append(f"process {pid} is left: {command_line(pid)}")
        killed = {
            line.split()[1] for line in errors.decode().splitlines() if line.startswith("dies")
        }
        for path in (*RUNTIME.glob("mpwatch/*"), *SPARE_RUNTIME.glob("*")):
            if self.has_killed and path.name.startswith(("attach-", ".attach-", ".hook-")):
                continue  # of an observer that was killed: a later one removes it
            if path.name.startswith("attach-") and (path / "unattended").exists():
                continue  # its process ended before it ran the call: the next one removes it
            if path.name.startswith(COPY_PREFIX):
                continue  # of a job that ended with its hook: it serves the next attach
            if path.name.split("-")[0] not in killed:
                notes = path.with_suffix(".notes")
                text = notes.read_text(errors="replace")[-1000:] if notes.exists() else ""
                # A hook whose thread gets no core for 0.25 s at the exit leaves them as well: run
                # no more rounds at a time than there are cores.
                self.faults.append(f"{path.name} is left by a process that nobody killed: {text}")


def without_pids(errors: bytes) -> bytes:
    """What a job wrote to standard error, without the numbers of the processes that exited."""
    return b"".join(
        line for line in errors.splitlines(keepends=True) if not line.startswith(b"dies ")
    )


def signals_in(output: bytes) -> list[int]:
    """The signals that workers died of, by the output of a job: `3 die -9 -15 -34`."""
    lines = (line.split() for line in output.decode().splitlines())
    return [-int(code) for words in lines if words[1:2] == ["die"] for code in words[2:]]


def pids_group(seed: int) -> Path | None:
    """A control group with the groups `job` and `observers`; `None` where none can be made."""
    for parent in PIDS_GROUPS:
        group = parent / f"mpwatch-chaos-{seed}"
        with contextlib.suppress(OSError):
            if parent.name == "cgroup":
                if "pids" not in (parent / "cgroup.controllers").read_text().split():
                    continue
                (parent / "cgroup.subtree_control").write_text("+pids")
            group.mkdir(exist_ok=True)
            if parent.name == "cgroup":
                (group / "cgroup.subtree_control").write_text("+pids")
            for name in ("job", "observers"):
                (group / name).mkdir(exist_ok=True)
                (group / name / "pids.max").write_text("max")
            return group
    return None


def remove_pids_group(seed: int) -> None:
    """Remove the control groups of a round; waits for its processes, which may just be exiting."""
    deadline_s = time.monotonic() + REMOVED_WITHIN_S
    for parent in PIDS_GROUPS:
        for name in ("job", "observers", ""):
            group = parent / f"mpwatch-chaos-{seed}" / name
            while group.exists():
                try:
                    group.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline_s:
                        print(f"{group} stays: {error}", file=sys.stderr)
                        break
                    time.sleep(0.02)


def limit_pids(group: Path) -> Callable[[], None]:
    """Let a control group start nothing more; the function that lifts the limit."""
    (group / "pids.max").write_text((group / "pids.current").read_text())

    def lift() -> None:
        (group / "pids.max").write_text("max")

    return lift


def session_of(pid: int) -> list[int]:
    """The processes of a session."""
    found = []
    for each in others():
        with contextlib.suppress(OSError):
            if os.getsid(each) == pid:
                found.append(each)
    return found


def is_far_ahead(seed: int) -> bool:
    """Whether a round has a time namespace with clocks that are far ahead."""
    return random.Random(f"clocks {seed}").random() < 0.3


def build_jumping_clock() -> None:
    """Compile the library with the jumping wall clock, if there is a compiler."""
    library = Path(tempfile.gettempdir(), "mpwatch-chaos-clock.so")
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{library}.{os.getpid()}"]
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(command, input=JUMPING_CLOCK.encode(), check=True)
        os.replace(f"{library}.{os.getpid()}", library)


def fill(path: Path, leave_bytes: int) -> None:
    """Make a file that takes what is free on its file system, but for `leave_bytes`."""
    free = shutil.disk_usage(path.parent).free - leave_bytes
    with path.open("wb") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(1, free))


def others() -> list[int]:
    """All processes of this pid namespace but this one and zombies."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and command_line(pid)]


def command_line(pid: int) -> str:
    """What a process runs; empty if it has ended."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return text.replace("\0", " ")[:300]
    return ""


def stacks_of(pid: int) -> str:
    """The stacks of a job that hangs, or of an observer."""
    dump = ["timeout", "60", sys.executable, "-m", "mpwatch", "dump", "--no-hook", str(pid)]
    return subprocess.run(dump, capture_output=True, text=True).stdout or command_line(pid)


def kill_all_but(pid: int) -> None:
    """Kill all other processes of this pid namespace, also those forked meanwhile."""
    deadline_s = time.monotonic() + 10
    while (left := [each for each in others() if each != pid]) and time.monotonic() < deadline_s:
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)


def inside(seed: int, results: Path) -> int:
    """One round, as the first process of its namespaces: print what was found as JSON."""
    RUNTIME.parent.mkdir(exist_ok=True)
    SPARE_RUNTIME.mkdir(mode=0o700, exist_ok=True)
    sizes = {Path("/dev/shm"): SHM_BYTES, RUNTIME.parent: RUNTIME_BYTES}
    for target, size in {**sizes, SPARE_RUNTIME: RUNTIME_BYTES}.items():
        options = f"size={size},mode={target.stat().st_mode & 0o7777:o}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(target)], check=True)
    RUNTIME.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(RUNTIME)
    os.environ["OMP_NUM_THREADS"] = "1"
    one = Round(seed, results)
    one.run()
    kind = f"{one.method}, {one.strategy}{', hooked' * one.is_hooked}"
    kind += ", jumping clock" * one.has_jumping_clock + ", far ahead" * is_far_ahead(seed)
    found = {"kind": kind, "faults": one.faults, "counts": dict(one.counts)}
    print(json.dumps({**found, "signals": one.signals}))
    return 0


class Tally:
    """What the rounds have found so far."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._signals: Counter[int] = Counter()
        self._done = 0
        self._longest_s = 0.0
        self._began_s = time.monotonic()
        self.failed: list[int] = []

    def add(self, seed: int, found: dict[str, Any]) -> None:
        """Count a round, and print what it was."""
        self._done += 1
        self._longest_s = max(self._longest_s, found["took_s"])
        self._counts.update(found["counts"])
        self._signals.update(found["signals"])
        self._counts[found["kind"].split(",")[0]] += 1
        print(f"round {seed} ({found['kind']}): {found['took_s']:.0f} s", flush=True)
        for fault in found["faults"]:
            print(f"FAULT in round {seed} ({found['kind']}): {fault}", flush=True)
        if found["faults"]:
            self.failed.append(seed)

    def print_figures(self, first: int) -> None:
        """Print the figures of all rounds."""
        took_s = time.monotonic() - self._began_s
        print(
            f"{self._done} rounds from seed {first} in {took_s:.0f} s, longest"
            f" {self._longest_s:.0f} s"
        )
        print(", ".join(f"{name} {count}" for name, count in sorted(self._counts.items())))
        numbers = sorted(self._signals)
        print(f"{self._signals.total()} workers died of {len(numbers)} signals: {numbers}")
        print(f"{len(self.failed)} rounds failed: {sorted(self.failed)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.endurance.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at a time")
    parser.add_argument("--inside", type=Path, metavar="RESULTS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        return inside(arguments.seed, arguments.inside)
    if not can_run():
        print("namespaces take root: sudo python -m tests.endurance.chaos", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is then ended as well
    build_jumping_clock()
    first = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="mpwatch-chaos-alone-") as results:
        rounds = Rounds(Path(results))
        try:
            with contextlib.suppress(KeyboardInterrupt), ThreadPoolExecutor(arguments.jobs) as pool:
                try:
                    begun = {
                        pool.submit(rounds.run, seed): seed
                        for seed in range(first, first + arguments.rounds)
                    }
                    for future in as_completed(begun):
                        tally.add(begun[future], future.result())
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    rounds.kill()
                    raise
        finally:
            # Also after a signal: the figures of the rounds so far are worth having.
            tally.print_figures(first)
    return 1 if tally.failed else 0


def can_run() -> bool:
    """Whether this user may make the namespaces and mount in them."""
    mount = ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    try:
        return subprocess.run([*NAMESPACES, *mount], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Rounds:
    """Runs rounds in namespaces of their own, from several threads."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._running: set[subprocess.Popen[str]] = set()
        self._is_over = False
        self._changing = threading.Lock()

    def kill(self) -> None:
        """End the rounds that run, and begin no further one."""
        with self._changing:
            self._is_over = True
            for popen in self._running:
                popen.kill()

    def run(self, seed: int) -> dict[str, Any]:
        """Run one round; what was found."""
        began_s = time.monotonic()
        try:
            found = self._run(seed)
        finally:
            remove_pids_group(seed)
        return {**found, "took_s": time.monotonic() - began_s}

    def _run(self, seed: int) -> dict[str, Any]:
        module = ["-m", "tests.endurance.chaos", "--inside", str(self._results)]
        dice = random.Random(f"far {seed}")
        ahead = [f"--{name}={dice.randrange(FAR_S)}" for name in ("monotonic", "boottime")]
        clocks = ["--time", *ahead] if is_far_ahead(seed) else []
        with self._changing:
            if self._is_over:
                return {"kind": "?", "faults": [], "counts": {}, "signals": []}
            popen = subprocess.Popen(
                [*NAMESPACES, *clocks, sys.executable, *module, "--seed", str(seed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._running.add(popen)
        try:
            output, errors = popen.communicate(timeout=ROUND_WITHIN_S)
            found: dict[str, Any] = json.loads(output.splitlines()[-1])
        except subprocess.TimeoutExpired as error:
            fault = f"the round itself did not end within {ROUND_WITHIN_S:.0f} s: {error.stderr!r}"
        except (IndexError, ValueError):
            fault = f"the round itself ended with {popen.returncode}: {errors[-2000:]}"
        else:
            return found
        finally:
            popen.kill()
            popen.wait()
            with self._changing:
                self._running.discard(popen)
        return {"kind": "?", "faults": [fault], "counts": {}, "signals": []}


if __name__ == "__main__":
    sys.exit(main())
