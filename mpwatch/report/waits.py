"""Who waits for whom, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitChain, WaitGraph, WaitLink
from mpwatch.report.table import Emphasis, Paper

MOVING = ("progress", "ordinary")
MOVING_SHOWN = 4
BEGINNINGS_SHOWN = 3
"""Of chains that go on alike, those that are told with what they wait for."""
MOMENT_S = 1.0
"""A wait that goes on by itself and is younger than this is how any busy job looks."""


def wait_lines(waits: WaitGraph, paper: Paper) -> list[str]:
    """Chains from who waits to what would have to move; the hopeless ones first."""
    stuck = [chain for chain in waits.chains if chain.verdict not in MOVING]
    moving = [
        chain for chain in waits.chains if chain.verdict in MOVING and not _is_of_a_moment(chain)
    ]
    lines: list[str] = []
    for same in (*_alike(stuck), *_alike(moving)[:MOVING_SHOWN]):
        lines += [*_chain_lines(same, paper), ""]
    left = len(_alike(moving)) - MOVING_SHOWN
    if left > 0:
        lines += [f"  and {left} more that go on by themselves", ""]
    return lines[:-1]


def _is_of_a_moment(chain: WaitChain) -> bool:
    """Whether a chain began just now."""
    since_s = chain.links[0].since_s if chain.links else None
    return since_s is not None and since_s < MOMENT_S


def _alike(chains: Iterable[WaitChain]) -> list[list[WaitChain]]:
    """Chains that differ only in who stands at their beginning, together."""
    groups: dict[object, list[WaitChain]] = {}
    for chain in chains:
        tail = tuple((link.process, link.words) for link in chain.links[1:])
        alone = chain if not tail else None
        groups.setdefault((chain.verdict, tail, alone), []).append(chain)
    return list(groups.values())


def _chain_lines(same: Sequence[WaitChain], paper: Paper) -> list[str]:
    """One chain, and who else waits for the same."""
    chain = same[0]
    lines = _beginnings(same, paper)
    for depth, link in enumerate(chain.links[1:]):
        arrow = "   " * depth + "<- "
        lines += paper.wrap(_link_words(link), f"  {arrow}", " " * (len(arrow) + 2))
    verdict = chain.verdict.replace("-", " ")
    conclusion = f": {chain.conclusion}" if chain.conclusion else ""
    first, *rest = paper.wrap(f"{verdict}{conclusion}", "  ", "    ")
    emphasis: Emphasis = "bad" if chain.verdict in ("cycle", "dead-end") else "plain"
    return [*lines, first.replace(verdict, paper.paint(verdict, emphasis), 1), *rest]


def _beginnings(same: Sequence[WaitChain], paper: Paper) -> list[str]:
    """Who stands at the beginning of chains that go on alike, and what each waits for."""
    alike: dict[str, list[WaitLink]] = {}
    for chain in same:
        if chain.links:
            alike.setdefault(chain.links[0].words, []).append(chain.links[0])
    lines: list[str] = []
    for link, *others in list(alike.values())[:BEGINNINGS_SHOWN]:
        lines += paper.wrap(_link_words(link), "  ", "  ")
        who = ", ".join(other.who for other in others)
        if others:
            so = "so do" if others[1:] else "so does"
            lines += paper.wrap(f"and {so} {who}", "  ", "    ")
    left = sum(map(len, list(alike.values())[BEGINNINGS_SHOWN:]))
    if left:
        lines += paper.wrap(f"and {left} more wait{'s' if left == 1 else ''}", "  ", "    ")
    return lines


def _link_words(link: WaitLink) -> str:
    since = f"  for {seconds_text(link.since_s)}" if link.since_s is not None else ""
    return f"{link.who} {link.words}{since}"
