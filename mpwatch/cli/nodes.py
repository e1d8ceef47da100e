"""Commands for jobs on several machines: the agent on a node, and reports of a whole job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpwatch.cli.failures import Failure

if TYPE_CHECKING:
    from mpwatch.model.snapshot import Snapshot
    from mpwatch.nodes.messages import Ask


def node(arguments: argparse.Namespace) -> int:
    """Serve a head on standard input and output until the input ends."""
    if sys.stdin.isatty() or sys.stdout.isatty():
        raise Failure(
            "mpwatch node speaks to another mpwatch through pipes, not to a terminal.",
            "mpwatch dump --job ssh:HOST",
        )
    source, sink = _own_descriptors()
    from mpwatch.nodes.agent import STOP_S, Agent
    from mpwatch.nodes.find import Selection, find_roots
    from mpwatch.nodes.jobs_of_node import JobsOfNode

    selection = Selection(arguments.job_pids, dict(arguments.match), arguments.part)
    jobs = JobsOfNode(lambda: find_roots(selection))
    agent = Agent(source, sink, jobs, _look)
    jobs.start()
    try:
        agent.run()
    finally:
        jobs.stop(STOP_S)
    return 0


def _own_descriptors() -> tuple[int, int]:
    """Standard input and output, moved to where nothing else reads or prints.

    A line that some library prints would otherwise be mixed into the frames, and a program started
    from here would keep the pipe open. What is printed goes to standard error.
    """
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return source, sink


def _look(snapshots: Sequence[Snapshot], ask: Ask) -> list[Snapshot]:
    """Read each job anew; of one that has ended, its last snapshot."""
    from mpwatch.observe.sources.oneshot import LookOptions, look_once

    options = LookOptions(stacks=ask.stacks, native=ask.native, locals=ask.locals)
    return [
        each if each.mode == "ended" else look_once(each.root, options) or each
        for each in snapshots
    ]
