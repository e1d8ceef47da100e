"""Commands that change something in a job: detach."""

from __future__ import annotations

import argparse

from mpwatch.cli.failures import EXIT_NOT_PERMITTED, Failure
from mpwatch.cli.targets import ended_meanwhile, target


def detach(arguments: argparse.Namespace) -> int:
    """Take the hook out of a whole tree, and say for each process how that went."""
    from mpwatch.attach import Detached, detach_tree
    from mpwatch.collect.tree import TreeCollector
    from mpwatch.collect.wanted import Wanted

    tree = TreeCollector(target(arguments.pid)).collect(
        Wanted(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)
    )
    if tree is None:
        raise ended_meanwhile(arguments.pid)
    staying: list[Detached] = []

    def tell(detached: Detached) -> None:
        words = "the hook is out" if detached.state == "absent" else detached.state
        print(f"{detached.process.pid}: {detached.reason or words}")
        if detached.state not in ("absent", "pending", "gone"):
            staying.append(detached)

    detach_tree(tree.processes, tell)
    if staying:
        raise Failure(
            f"The hook is still in {len(staying)} of {len(tree.processes)} processes.",
            staying[0].fix,
            EXIT_NOT_PERMITTED,
        )
    return 0
