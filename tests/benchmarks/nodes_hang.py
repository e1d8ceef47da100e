"""Seconds from the hang of a rank to its name on the screen, for a job on N nodes of 64 ranks.

    python -m tests.benchmarks.nodes_hang RECORDING HUNG_AT 10 100 1000 [--head-only]

RECORDING is one real node, and HUNG_AT the time at which its rank 37 has hung:

    MPWATCH_J=1 STUCK=37 HANG=/tmp/hang OMP_NUM_THREADS=1 python -m torch.distributed.run \\
        --nproc-per-node 64 tests/programs/rank_hangs_in_step.py &
    mpwatch record --job local:1 --match MPWATCH_J=1 -o RECORDING --for 180 &
    touch /tmp/hang    # once all ranks work; /tmp/hang.at then has the time

What this node has sent, from `BEFORE_S` before the hang on, is sent again in real time by another
process over a pipe for each of N nodes, up to a second later on each, with the numbers of its
ranks and the address of one job. On all nodes but one, the rank that hung sends what the rank
before it has sent, and the node has not found by itself that a rank is stuck. This process runs the
head, the findings and the dashboard as `mpwatch job` does, but for the terminal: the screen is
drawn and not written; with --head-only there is none.
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from textual.message import Message

from mpwatch import __version__
from mpwatch.diagnose.analysis.distributed.flight_recorder import STUCK
from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.job_source import JobState, LiveJobSource
from mpwatch.nodes.launchers.launch import Launch
from mpwatch.nodes.recording import JobRecording, MessageLine
from mpwatch.nodes.wire.messages import Hello, Row, Summary, node_frame
from mpwatch.nodes.wire.summary import SummaryReader
from mpwatch.tui import job_app
from mpwatch.tui.job_app import JobApp, StateArrived
from tests.tui.screen_text import screen_text

RANKS = 64
HUNG = 37
BEFORE_S = 15.0
AFTER_S = 60.0
STARTED_PER_S = 8
"""A head starts at most 20 agents a second (`mpwatch.nodes.head.head.SPACING_S`)."""
SIZE = (160, 48)
JOB = "10.0.0.1:29500"
"""What the ranks of all nodes meet at, in place of the loopback address of the recorded one."""
_OWN = ("pid", "label", "rank")
"""Fields that tell one rank from another."""


class Stream(NamedTuple):
    """What one node has sent."""

    messages: list[tuple[float, Summary]]
    """Each with its time after the hang, seconds."""
    hung_key: str
    twin_key: str
    """The rows of the rank that hung, and of the one before it."""


def read_stream(path: str, hung_at_s: float) -> Stream:
    """The messages of a recording around a hang; the first one has all rows."""
    reader = SummaryReader()
    messages: list[tuple[float, Summary]] = []
    with JobRecording(path) as recording:
        for _, line in recording.lines():
            if not isinstance(line, MessageLine) or line.is_repeated:
                continue
            at_s = recording.header.wall_s + line.at_s - hung_at_s
            if not isinstance(line.message, Summary) or at_s > AFTER_S:
                continue
            assert reader.apply(line.message)
            if at_s < -BEFORE_S:
                continue
            # The reader goes on changing the rows of its state.
            message = line.message if messages else copy.deepcopy(reader.full())
            assert message is not None
            messages.append((at_s, message))
    keys = {row["rank"]: key for key, row in messages[0][1].changed["ranks"].items()}
    return Stream(messages, keys[HUNG], keys[HUNG - 1])


def of_node(message: Summary, stream: Stream, node: int, nodes: int) -> Summary:
    """A message as another node of a job on several would have sent it."""
    rows = dict(message.changed.get("ranks", {}))
    if node != nodes // 2:
        own = {name: value for name, value in rows.pop(stream.hung_key, {}).items() if name in _OWN}
        twin = {
            name: value for name, value in rows.get(stream.twin_key, {}).items() if name not in _OWN
        }
        if own or twin:
            rows[stream.hung_key] = {**twin, **own}
    findings = message.changed.get("findings", {})
    changed = {
        **message.changed,
        "ranks": {key: _renumbered(row, node, nodes) for key, row in rows.items()},
        "findings": {key: row for key, row in findings.items() if not key.startswith(STUCK)},
    }
    if "facts" in changed.get("node", {}).get("", {}):
        row = changed["node"][""]
        facts = {**row["facts"], "WORLD_SIZE": str(RANKS * nodes)}
        changed["node"] = {"": {**row, "facts": facts}}
    return Summary(message.sequence, message.at_s, message.is_full, changed, message.removed)


def _renumbered(row: Row, node: int, nodes: int) -> Row:
    row = dict(row)
    if row.get("rank") is not None:
        row["rank"] += RANKS * node
        row["label"] = f"rank {row['rank']}"
    if row.get("world_size") is not None:
        row["world_size"] = RANKS * nodes
    if row.get("job"):
        row["job"] = JOB
    return row


def node_names(nodes: int) -> list[str]:
    return [f"node-{number}" for number in range(nodes)]


def hung_rank(nodes: int) -> int:
    return RANKS * (nodes // 2) + HUNG


# --- the least that any head needs ---------------------------------------------------------------


def least_s(stream: Stream) -> float:
    """After how many seconds two nodes have sent enough, to a head that takes no time."""
    readers = [SummaryReader(), SummaryReader()]
    judge = JobJudge()
    for at_s, message in stream.messages:
        for node, reader in enumerate(readers):
            reader.apply(of_node(message, stream, node, 2))
        views = [
            NodeView(name, "live", 0.0, summary=reader.summary())
            for name, reader in zip(node_names(2), readers, strict=True)
        ]
        if any(each.rank == hung_rank(2) for each in judge.findings(views) if each.rule == STUCK):
            return at_s
    return float("inf")


# --- the nodes -----------------------------------------------------------------------------------


class Pipe:
    """The head's ends of the pipes to one node."""

    def __init__(self, output: int, errors: int) -> None:
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(errors, "rb", buffering=0)
        self.stdin: IO[bytes] | None = os.fdopen(
            os.open(os.devnull, os.O_WRONLY), "wb", buffering=0
        )

    def has_ended(self) -> bool:
        return False

    def kill(self) -> None:
        pass

    def kill_all(self) -> None:
        pass

    def wait(self) -> int | None:
        return None


def send_all(stream: Stream, outputs: list[int], ready: int, begin: int, result: int) -> None:
    """Send what all nodes send, at its time; runs in a process of its own."""
    nodes = len(outputs)
    chance = random.Random(1)
    phases = [chance.random() for _ in range(nodes)]
    due = sorted(
        (at_s + phase, place, node)
        for node, phase in enumerate(phases)
        for place, (at_s, _) in enumerate(stream.messages)
    )
    frames = [
        node_frame(of_node(stream.messages[place][1], stream, node, nodes))
        for _, place, node in due
    ]
    for node, output in enumerate(outputs):
        os.write(output, node_frame(Hello(__version__, f"node-{node}", 1)))
    os.write(ready, b".")
    hang_s = float(os.read(begin, 100))
    latest_s = 0.0
    sent = 0
    try:
        for (at_s, place, node), frame in zip(due, frames, strict=True):
            time.sleep(max(0.0, hang_s + at_s - time.time()))
            written = 0
            while written < len(frame):
                written += os.write(outputs[node], frame[written:])
            latest_s = max(latest_s, time.time() - hang_s - at_s)
            sent += len(frame) if place > 0 else 0  # the first has all rows
            per_s = sent / nodes / (at_s + BEFORE_S)
            os.pwrite(result, f"{latest_s:.2f} {per_s:.0f}".ljust(40).encode(), 0)
    except BrokenPipeError:
        return


# --- the head ------------------------------------------------------------------------------------


class TimedApp(JobApp):
    """The dashboard, with the time at which a rank is named on it."""

    CSS_PATH = str(Path(job_app.__file__).with_name("dashboard.tcss"))
    rank = -1
    found_s: float | None = None
    shown_s: float | None = None
    states = 0
    delay_s = 0.0

    def _post(self, message: Message) -> None:
        self.delay_s = run_delay_s()
        if isinstance(message, StateArrived) and self._is_named(message.state):
            self.found_s = self.found_s or time.time()
        super()._post(message)

    def on_state_arrived(self, message: StateArrived) -> None:
        """Note the state; Textual calls the handler of the base class, which draws it, as well."""
        self.states += 1
        if self.shown_s is None and self._is_named(message.state):
            self.call_after_refresh(self._shown)

    def _shown(self) -> None:
        self.shown_s = self.shown_s or time.time()

    def _is_named(self, state: JobState) -> bool:
        return is_named(state, self.rank)


class Found:
    """The time at which a state names a rank; the dashboard is not run."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.found_s: float | None = None
        self.states = 0
        self.delay_s = 0.0
        self.last = JobState("")

    def deliver(self, state: JobState) -> None:
        self.states, self.last = self.states + 1, state
        self.delay_s = run_delay_s()
        if self.found_s is None and is_named(state, self.rank):
            self.found_s = time.time()


def watch_head(source: LiveJobSource, found: Found, hang_s: float) -> None:
    """Run the head alone until the rank is named."""
    source.start(found.deliver)
    while found.found_s is None and time.time() < hang_s + AFTER_S:
        time.sleep(0.05)
    time.sleep(3.0)
    source.stop()


def run_delay_s() -> float:
    """For how long this thread was ready to run and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def is_named(state: JobState, rank: int) -> bool:
    return any(each.rank == rank for each in state.findings if each.rule == STUCK)


async def watch(app: TimedApp, hang_s: float) -> None:
    """Run the dashboard until the rank is named."""
    async with app.run_test(size=SIZE) as pilot:
        while app.shown_s is None and time.time() < hang_s + AFTER_S:
            await asyncio.sleep(0.05)
        await asyncio.sleep(3.0)
        await pilot.pause()
        text = screen_text(app)
        assert app.shown_s is None or f"rank {app.rank} on node-" in text, text


def measure(stream: Stream, nodes: int, *, has_screen: bool) -> None:
    """Measure once and print one line."""
    pipes = [(os.pipe(), os.pipe()) for _ in range(nodes)]
    ready, begin = os.pipe(), os.pipe()
    result = os.memfd_create("result")
    sender = os.fork()
    if sender == 0:
        for output, errors in pipes:
            os.close(output[0])
            os.close(errors[0])
        send_all(stream, [output[1] for output, _ in pipes], ready[1], begin[0], result)
        os.kill(os.getpid(), signal.SIGKILL)
    for output, errors in pipes:
        os.close(output[1])
        os.close(errors[1])
    os.read(ready[0], 1)
    # The agents are started some at a time, and all of them watch before the rank hangs.
    hang_s = time.time() + BEFORE_S + 5.0 + nodes / STARTED_PER_S
    os.write(begin[1], f"{hang_s}".encode())
    launches = [
        Launch(name, ("made-up",), open=partial(Pipe, output[0], errors[0]))
        for name, (output, errors) in zip(node_names(nodes), pipes, strict=True)
    ]
    source = LiveJobSource(f"made-up:{nodes}", launches)
    began_s, began_cpu_s = time.time(), time.process_time()
    if has_screen:
        app = TimedApp(source, f"made-up:{nodes}")
        app.rank = hung_rank(nodes)
        asyncio.run(watch(app, hang_s))
        found_s, shown_s, states, last = app.found_s, app.shown_s, app.states, app.state
        delay_s = app.delay_s
    else:
        found = Found(hung_rank(nodes))
        watch_head(source, found, hang_s)
        found_s, shown_s, states, last = found.found_s, None, found.states, found.last
        delay_s = found.delay_s
    seconds = time.time() - began_s
    cpu = (time.process_time() - began_cpu_s) / seconds
    os.kill(sender, 15)
    os.waitpid(sender, 0)
    latest, sent = os.pread(result, 100, 0).decode().split()
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    states_of_nodes = dict(Counter(view.state for view in last.nodes))
    assert states_of_nodes == {"live": nodes}, states_of_nodes
    print(
        f"{nodes:5} nodes  found after {_after(found_s, hang_s)}, on the screen after "
        f"{_after(shown_s, hang_s)}  {states} states  cpu {cpu:.2f} of a core, the head had none "
        f"for {delay_s:.1f} of {seconds:.0f} s  {rss_mb} MB  {sent} bytes a node and second  last "
        f"message sent {latest} s late  load {os.getloadavg()[0]:.0f}",
        flush=True,
    )


def _after(at_s: float | None, hang_s: float) -> str:
    return "-" if at_s is None else f"{at_s - hang_s:.1f} s"


def main() -> None:
    has_screen = "--head-only" not in sys.argv
    path, hung_at, *counts = [each for each in sys.argv[1:] if each != "--head-only"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    stream = read_stream(path, float(hung_at))
    print(f"two nodes, a head that takes no time: {least_s(stream):.1f} s", flush=True)
    for count in map(int, counts or ("10", "100", "1000")):
        child = os.fork()  # the peak of resident memory is of one process
        if child == 0:
            measure(stream, count, has_screen=has_screen)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
