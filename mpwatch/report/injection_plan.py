"""The plan of an injection as text; `report.json` has the same as a document."""

from __future__ import annotations

from mpwatch.model.injection import ALREADY_THERE, InjectionPlan, PlannedInjection
from mpwatch.model.units import processes_text
from mpwatch.report.table import PLAIN, TextStyle

_EFFECTS = (
    "Processes that the job starts later get the hook as well. mpwatch detach PID undoes all of "
    "this: it restores every function, ends the hook's thread and removes its files. The program's "
    "results, output and exit code do not change."
)


def plan_text(plan: InjectionPlan, *, style: TextStyle = PLAIN) -> str:
    """An entry for each process: the method and what would be written, or why it is left out."""
    lines: list[str] = []
    for each in plan.processes:
        lines += _entry(each, style)
    if plan.injectable():
        lines += ["", style.paint("what the hook replaces in each", "strong")]
        lines += style.wrap(", ".join(_points(plan)), "  ")
        lines += ["", *style.wrap(_EFFECTS, "")]
    return "\n".join([*lines, "", summary(plan)])


def summary(plan: InjectionPlan) -> str:
    """The numbers of processes with and without injection, one sentence."""
    count = len(plan.injectable())
    there = sum(each.method == ALREADY_THERE for each in plan.processes)
    words = f"The hook would be injected into {processes_text(count)}"
    if there:
        words += f"; {there} {'has' if there == 1 else 'have'} it already"
    if left_out := plan.left_out():
        words += f"; {len(left_out)} {'is' if len(left_out) == 1 else 'are'} left out"
    return words + "."


def _entry(each: PlannedInjection, style: TextStyle) -> list[str]:
    head = f"{each.process.pid:<8} {each.role if each.role != 'other' else each.name}"
    if each.would_be_injected:
        lines = [style.paint(f"{head}: inject, by {each.method}", "strong")]
        for words in each.writes:
            lines += style.wrap(f"- {words}", " " * 9, " " * 11)
        return lines
    if each.method == ALREADY_THERE:
        return [f"{head}: has the hook already"]
    lines = style.wrap(f"{head}: left out: {each.reason}", "", " " * 9)
    return lines + (style.wrap(f"fix: {each.fix}", " " * 9, " " * 14) if each.fix else [])


def _points(plan: InjectionPlan) -> list[str]:
    """The patch points, those of one module together."""
    by_module: dict[str, list[str]] = {}
    for point in plan.patches:
        module, _, name = point.partition(": ")
        by_module.setdefault(module, []).append(name)
    return [f"{module} ({', '.join(names)})" for module, names in by_module.items()]
