"""What the head of a job takes whose N nodes are reached through relays.

    python -m tests.benchmarks.nodes_relays 1000

A program of this module stands in for each relay and the agents behind it: it sends made-up
summaries of nodes of 64 ranks, of which four change each second. Once all nodes were read, measured
for 20 s: cpu and proportional memory (Pss) of the head with its findings, and its descriptors. The
clients of ssh or srun, one for each relay, are not among that.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial

from mpwatch import __version__
from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.launchers.launch import Launch, RelayWay
from mpwatch.nodes.launchers.relays import in_batches
from mpwatch.nodes.wire.channels import Event, Kind, Multiplexer
from mpwatch.nodes.wire.messages import Hello, node_frame
from mpwatch.nodes.wire.summary import SummaryWriter
from tests import procfs
from tests.benchmarks.nodes_agents import cpu_s, pss_mb
from tests.benchmarks.nodes_head import sections

SECONDS = 20.0
CHANGED = 4


def launches(count: int) -> list[Launch]:
    def command(place: int, others: Sequence[str]) -> tuple[str, ...]:
        return (sys.executable, "-m", __spec__.name, "relay", str(count), str(place), *others)

    return [
        Launch(
            f"node-{place}",
            ("false",),
            relay=RelayWay(str(place), "", partial(command, place)),
        )
        for place in range(count)
    ]


class Node:
    """A node as its agent would send it."""

    def __init__(self, number: int, nodes: int) -> None:
        self.writer = SummaryWriter()
        self.sections = sections(number, nodes, 0)
        self.number, self.nodes, self.second = number, nodes, 0

    def next(self) -> bytes:
        self.second += 1
        newer = sections(self.number, self.nodes, self.second)["ranks"]
        changed = sorted(newer)[self.second % 16 * CHANGED :][:CHANGED]
        ranks = {**self.sections["ranks"], **{key: newer[key] for key in changed}}
        self.sections = {**self.sections, "ranks": ranks}
        return node_frame(self.writer.next(time.monotonic(), self.sections))


def relay(count: int, *places: int) -> None:
    way = Multiplexer(0, 1, waits=False)
    way.send(Kind.HELLO)
    nodes: dict[int, Node] = {}
    due_s = time.monotonic()
    while True:
        for each in way.step(max(0.0, due_s - time.monotonic())):
            if not isinstance(each, Event):
                return
            if each.kind is Kind.OPEN:
                nodes[each.channel] = Node(places[int(each.data)], count)
                hello = node_frame(Hello(__version__, socket.gethostname(), os.getpid(), 1))
                way.send(Kind.DATA, each.channel, hello + nodes[each.channel].next())
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + 1.0
            for channel, node in nodes.items():
                way.send(Kind.DATA, channel, node.next())


def measure(count: int) -> None:
    began_s = time.monotonic()
    head, judge = Head(in_batches(launches(count))), JobJudge()
    try:
        while not head.is_settled:
            head.step()
        settled_s = time.monotonic()
        cpu_before_s = cpu_s([os.getpid()])
        bytes_before = sum(view.received_bytes for view in head.views())
        while time.monotonic() < settled_s + SECONDS:
            for _ in range(5):
                head.step()
            views = head.views()
            judge.findings(views)
        took_s = time.monotonic() - settled_s
        received = sum(view.received_bytes for view in views) - bytes_before
        states = {view.state for view in views}
        print(
            f"{count:5} nodes  all read after {settled_s - began_s:.0f} s  "
            f"{len(procfs.children(os.getpid()))} relays  "
            f"{received / count / took_s:.0f} bytes a node and second  "
            f"head {(cpu_s([os.getpid()]) - cpu_before_s) / took_s:.2f} cores, "
            f"{pss_mb([os.getpid()]):.0f} MB, {len(os.listdir('/proc/self/fd'))} descriptors  "
            f"{', '.join(sorted(states))}"
        )
    finally:
        head.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["relay"]:
        relay(*map(int, sys.argv[2:]))
    else:
        for each in map(int, sys.argv[1:] or ("100", "1000")):
            measure(each)
