"""Commands that change something: detach, clean."""

from __future__ import annotations

import argparse
import sys

from mpwatch.cli.failures import EXIT_NOT_PERMITTED, Failure
from mpwatch.cli.targets import ended_meanwhile, target


def detach(arguments: argparse.Namespace) -> int:
    """Detach the hook from all processes of a job, and print the result for each."""
    from mpwatch.attach import Detached, InjectionLog, detach_tree
    from mpwatch.collect.tree import TreeCollector
    from mpwatch.collect.wanted import Wanted

    tree = TreeCollector(target(arguments.pid)).collect(
        Wanted(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)
    )
    if tree is None:
        raise ended_meanwhile(arguments.pid)
    staying: list[Detached] = []
    commands = {sample.process: sample.cmdline for sample in tree.processes}
    log = InjectionLog()

    def tell(detached: Detached) -> None:
        log.detached(detached, commands.get(detached.process, ()))
        words = "detached" if detached.method else "no hook in this process"
        if detached.state != "absent":
            words = detached.state
        print(f"{detached.process.pid}: {detached.reason or words}")
        if detached.state not in ("absent", "pending", "gone"):
            staying.append(detached)

    detach_tree(tree.processes, tell)
    if log.problem is not None:
        print(f"mpwatch: the log of detaches is not complete: {log.problem}", file=sys.stderr)
    if staying:
        raise Failure(
            f"The hook is still in {len(staying)} of {len(tree.processes)} processes.",
            staying[0].fix,
            EXIT_NOT_PERMITTED,
        )
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """List what dead jobs left behind, and remove it if that was asked for."""
    from mpwatch.collect.leftovers import find_leftovers, remove
    from mpwatch.model.units import bytes_text, seconds_text

    leftovers = find_leftovers()
    for problem in leftovers.problems:
        print(f"mpwatch: {problem}", file=sys.stderr)
    if not leftovers.files:
        print("Nothing to clean up.")
        return 0
    refused = []
    for each in leftovers.files:
        age = seconds_text(each.age_s)
        print(f"{each.kind}  {bytes_text(each.size_bytes):>6}  {age:>9}  {each.shown}")
        if arguments.yes:
            refused.append(remove(each))
    total = bytes_text(sum(each.size_bytes for each in leftovers.files))
    if not arguments.yes:
        print(f"{len(leftovers.files)} files, {total}. To remove them: mpwatch clean --yes")
        return 0
    reasons = [reason for reason in refused if reason is not None]
    print(f"{len(leftovers.files) - len(reasons)} files removed, {total} in all.")
    if reasons:
        raise Failure(f"{len(reasons)} could not be removed: {reasons[0]}", "", EXIT_NOT_PERMITTED)
    return 0
