"""Commands that change something outside: detach."""

from __future__ import annotations

import argparse

from mpwatch.cli.failures import EXIT_NOT_PERMITTED, Failure
from mpwatch.cli.targets import target


def detach(arguments: argparse.Namespace) -> int:
    """Take the hook out of a whole tree."""
    from mpwatch.attach import detach_tree
    from mpwatch.collect.tree import TreeCollector
    from mpwatch.collect.wanted import Wanted

    tree = TreeCollector(target(arguments.pid)).collect(
        Wanted(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)
    )
    samples = tree.processes if tree is not None else ()
    refused = []

    def tell(result: object) -> None:
        print(result)

    for detached in detach_tree(samples):
        print(f"{detached.process.pid}: {detached.reason or 'the hook is out'}")
        if not detached.is_out:
            refused.append(detached)
    if refused:
        raise Failure(
            f"The hook stayed in {len(refused)} of {len(samples)} processes.",
            exit_code=EXIT_NOT_PERMITTED,
        )
    return 0
