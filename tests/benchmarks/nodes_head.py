"""What a head spends on many nodes: made-up summaries of N nodes of 64 ranks, decoded and judged.

    python -m tests.benchmarks.nodes_head 10 100 1000

For each number of nodes, one line: bytes that a node sends in a second while all of its ranks do
something else each second, cpu seconds of the head per second of the job (decoding, findings of the
job), resident memory of this process, which also holds the writers of all nodes.
"""

from __future__ import annotations

import random
import resource
import sys
import time

from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.messages import (
    NODE_LIMIT_BYTES,
    FrameReader,
    Summary,
    message_of_node,
    node_frame,
)
from mpwatch.nodes.wire.summary import (
    WAITS_ENOUGH,
    NodeRow,
    RankRow,
    SummaryReader,
    SummaryWriter,
    row_of,
)

RANKS = 64
SECONDS = 5


def sections(node, nodes, second):
    rows = {}
    for place in range(RANKS):
        row = RankRow(
            pid=1000 + place,
            label=f"rank {node * RANKS + place}",
            rank=node * RANKS + place,
            world_size=nodes * RANKS,
            job="10.0.0.1:29500",
            state="running",
            doing=f"train.py:48 forward, batch {random.randrange(10**6)}",
            line="train.py:48 forward",
            has_stack=True,
            cpu_percent=random.randrange(0, 110, 10),
            waits_percent=random.randrange(0, 40, 10),
            waits=min(WAITS_ENOUGH, second * 2),
            works_at="train.py:48 forward",
            step_ms=random.randrange(900, 1000),
            step_of="batch",
        )
        rows[str(place)] = row_of(row)
    facts = {"torch": "2.13.0", "python": "3.11", "open files limit": "1024"}
    node_row = NodeRow(state="watching", processes=RANKS, counts={"rank": RANKS}, facts=facts)
    return {"node": {"": row_of(node_row)}, "ranks": rows, "findings": {}}


def measure(nodes):
    writers = [SummaryWriter() for _ in range(nodes)]
    readers = [SummaryReader() for _ in range(nodes)]
    frames = [FrameReader(NODE_LIMIT_BYTES) for _ in range(nodes)]
    judge = JobJudge()
    sizes, costs = [], []
    for second in range(SECONDS):
        sent = [
            node_frame(writer.next(float(second), sections(node, nodes, second)))
            for node, writer in enumerate(writers)
        ]
        began_s = time.process_time()
        for reader, frame_reader, data in zip(readers, frames, sent, strict=True):
            for frame in frame_reader.feed(data):
                message = message_of_node(frame.body)
                assert isinstance(message, Summary)
                reader.apply(message)
        decoded_s = time.process_time()
        views = [NodeView(f"n{n}", "live", 0.1, summary=r.summary()) for n, r in enumerate(readers)]
        judge.findings(views)
        if second > 0:
            sizes.append(sum(map(len, sent)) / nodes)
            costs.append((decoded_s - began_s, time.process_time() - decoded_s))
    decoding, judging = (sum(column) / len(column) for column in zip(*costs, strict=True))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{nodes:5} nodes  {sum(sizes) / len(sizes):6.0f} bytes a node and second  "
        f"decoding {decoding:.3f} s  findings {judging:.3f} s  {rss_mb} MB"
    )


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("10", "100", "1000")):
        measure(count)
