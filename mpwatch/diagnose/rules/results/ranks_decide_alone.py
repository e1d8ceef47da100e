"""Each rank lowers its learning rate by a value that only it has, as the source shows."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.distributed.ranks import ranks_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.model.findings import Finding, Severity

RULE = "ranks-decide-alone"
IS_OF_RESULTS = True


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each statement that decides on each rank by a value of its own.

    The source shows that nothing in its function reduces that value, and not whether the ranks
    compute it from the same data: the finding says how to tell.
    """
    ranks = ranks_of(index)
    if len(ranks) < 2:
        return
    for mark in {(each.file, each.statement): each for each in marks(index, "own-value")}.values():
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=ranks[0].process,
            others=tuple(each.process for each in ranks[1:]),
            subject=f"{mark.file} {mark.statement.line}",
            summary=(
                f"the ranks may train with different learning rates: {mark_words(mark)} decides "
                "by a value that each rank computes for itself"
            ),
            evidence=(
                f"the value is {mark.about}, which no collective of its function or of those that "
                "compute it reduces or sends",
                f"it runs on {all_called(ranks)}",
            ),
            cause=(
                f"ReduceLROnPlateau lowers the learning rate where {mark.about} has not improved. "
                "Ranks that compute it from different parts of the data (a DistributedSampler for "
                "the validation, or the loss of their own batches) come to that in different "
                "epochs. Their gradients are averaged, but each takes steps of another size, so "
                "that the weights differ more and more. Nothing fails. If all ranks validate all "
                "of the same data, the values are equal and nothing is wrong."
            ),
            advice=(
                f"Average {mark.about} over the ranks before that line (all_reduce, divided by the "
                "number of ranks), or decide on rank 0 and broadcast the learning rate. To see "
                "whether they differ, log optimizer.param_groups[0]['lr'] on every rank: the log "
                "of rank 0 alone does not show it. SyncBatchNorm, another seed or a barrier do not "
                "help."
            ),
        )
