"""Each collective is checked by two more, because of a debugging setting."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.distributed.ranks import has_group
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, counted
from mpwatch.model.findings import Finding, Severity

RULE = "collective-checks"
VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding if ranks with a process group were started with the setting."""
    checked = [
        process
        for process in index.snapshot.living()
        if process.sample.environment.get(VARIABLE, "").upper() == "DETAIL" and has_group(process)
    ]
    if not checked:
        return
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=checked[0].process,
        summary=f"{VARIABLE}=DETAIL checks each collective of {counted(len(checked), 'rank')}",
        evidence=(f"{VARIABLE}=DETAIL in the environment of {all_called(checked)}",),
        cause=(
            "With this setting the ranks compare name, shape and type of each collective in "
            "additional collectives before it is called. Small ones then take several times as "
            "long (3 to 5 times with gloo on one machine). It often remains set after a search "
            "for ranks that disagree."
        ),
        advice=(
            f"Unset {VARIABLE}, or set it to INFO, and start the job again. Ranks that call "
            "different collectives then wait for each other instead of raising an error."
        ),
    )
