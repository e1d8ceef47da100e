"""Maintenance commands: detach, clean."""

from __future__ import annotations

import argparse
import sys

from mpwatch.attach.outcomes import CALLED_OFF, still_attached
from mpwatch.cli.failures import EXIT_NOT_PERMITTED, Failure
from mpwatch.cli.targets import ended_meanwhile, target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpwatch.attach.outcomes import Detached


def detach(arguments: argparse.Namespace) -> int:
    """Detach the hook from a process tree, and print the result for each process."""
    from mpwatch.attach.inject_tree import stray_forks
    from mpwatch.attach.process_actions import detach_and_log
    from mpwatch.collect.job.reader import ReadRequest, TreeCollector

    tree = TreeCollector(target(arguments.pid)).collect(ReadRequest.processes_only())
    if tree is None:
        raise ended_meanwhile(arguments.pid)

    def report(detached: Detached) -> None:
        print(f"{detached.process.pid}: {_outcome_words(detached)}")
        for sentence in detached.left:
            print(f"  remains: {sentence}")

    outcomes, problem = detach_and_log(tree.processes, report)
    for stray in stray_forks(tree.processes):
        print(
            f"{stray.pid}: not of the tree of {arguments.pid}, and left alone: it has the hook of"
            f" a process that has exited; to detach it: mpwatch detach {stray.pid}"
        )
    staying = [each for each in outcomes if each.is_attached]
    if any(each.state == "absent" and each.had_hook and not each.reason for each in outcomes):
        print("The hook's modules remain imported, but unused, until a process exits.")
    if problem is not None:
        print(f"mpwatch: the log of detaches is not complete: {problem}", file=sys.stderr)
    if staying:
        raise Failure(
            f"{still_attached(staying, len(tree.processes))}.",
            staying[0].fix or f"mpwatch doctor {staying[0].process.pid}",
            EXIT_NOT_PERMITTED,
        )
    return 0


def _outcome_words(detached: Detached) -> str:
    if detached.reason:
        return detached.reason
    if detached.state != "absent":
        return detached.state
    if detached.method == CALLED_OFF:
        return "the injection was called off"
    return "the hook is detached" if detached.had_hook else "there is no hook in it"


def clean(arguments: argparse.Namespace) -> int:
    """List the remaining files of dead jobs; with `--yes` remove them."""
    from mpwatch.collect.host.orphans import find_leftovers, remove
    from mpwatch.model.units import bytes_text, seconds_text

    leftovers = find_leftovers()
    for problem in leftovers.problems:
        print(f"mpwatch: {problem}", file=sys.stderr)
    if not leftovers.files:
        print("Nothing to clean up.")
        return 0
    reasons, removed_bytes = [], 0
    for each in leftovers.files:
        age = seconds_text(each.age_s)
        print(f"{each.kind:<7}  {bytes_text(each.size_bytes):>6}  {age:>9}  {each.shown}")
        if not arguments.yes:
            continue
        if reason := remove(each):
            reasons.append(reason)
        else:
            removed_bytes += each.size_bytes
    count = len(leftovers.files)
    if not arguments.yes:
        total = bytes_text(sum(each.size_bytes for each in leftovers.files))
        print(f"Files: {count}, {total}. To remove them: mpwatch clean --yes")
        return 0
    print(f"Files removed: {count - len(reasons)} of {count}, {bytes_text(removed_bytes)}.")
    if reasons:
        sentence = f"Not all files could be removed; the first: {reasons[0]}."
        raise Failure(sentence, "mpwatch clean", EXIT_NOT_PERMITTED)
    return 0
