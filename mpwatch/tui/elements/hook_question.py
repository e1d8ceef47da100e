"""The question whether to inject the hook, as the top line, and the injection plan."""

from __future__ import annotations

from collections import Counter

from mpwatch.model.injection import InjectionPlan
from mpwatch.report.injection_plan import plan_text
from mpwatch.report.table import TextStyle
from mpwatch.tui.elements.styled_text import Line, cell, cut, line, width_of

_KEYS: Line = line(
    ("y", "accent"), " yes, ", ("n", "accent"), " no, ", ("d", "accent"), " what it does"
)
_SHORT_KEYS: Line = line(("y", "accent"), "es ", ("n", "accent"), "o ", ("d", "accent"), "etails")


def question_line(plan: InjectionPlan, width: int) -> Line:
    """The question with its answers; the reasons are shortened to the width."""
    count = len(plan.injectable())
    asked = line(
        " ",
        (f"inject the hook into {count} process{'' if count == 1 else 'es'}?", "warning"),
        " ",
    )
    for left_out in _left_out(plan):
        whole = (*asked, *cell(left_out), *_KEYS)
        if width_of(whole) < width:
            return whole
    return cut((*asked, *_SHORT_KEYS), width)


def _left_out(plan: InjectionPlan) -> list[str]:
    """Texts about the processes left out, the longest first."""
    left_out = plan.left_out()
    if not left_out:
        return [""]
    count = len(left_out)
    (reason, its_count), *others = Counter(each.reason for each in left_out).most_common()
    words = f"{count} {'is' if count == 1 else 'are'} left out"
    more = f" and {count - its_count} for other reasons" if others else ""
    return [f"{words}: {reason}{more}. ", f"{words}: {reason[:24].rstrip()}.. ", f"{words}. ", ""]


def plan_lines(plan: InjectionPlan, width: int) -> tuple[Line, ...]:
    """The effect of an injection on each process, and the keys for the answer."""
    text = plan_text(plan, style=TextStyle(width=width, has_colour=False))
    return (
        line(("inject the hook", "title")),
        cell(""),
        *(cell(each) for each in text.splitlines()),
        cell(""),
        line(
            ("y", "accent"), " inject   ", ("n", "accent"), " do not   ", ("esc", "accent"), " back"
        ),
    )
