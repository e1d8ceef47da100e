"""Ranks step with learning rates or optimizer states of their own, as the source shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mpwatch.diagnose.analysis.distributed.ranks import ranks_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

RULE = "ranks-decide-alone"
IS_OF_RESULTS = True


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each statement that can make the steps of the ranks differ.

    It decides on each rank by a value of its own, or loads on one rank alone. The source shows that
    nothing in its function shares that value or state, and not whether the ranks compute it from
    the same data, or take steps with it at all: the finding says how to tell.
    """
    ranks = ranks_of(index)
    if len(ranks) < 2:
        return
    for mark in _by_statement(marks(index, "own-value")):
        yield _own_value(mark, ranks)
    for mark in _by_statement(marks(index, "loads-alone")):
        yield _loads_alone(mark, ranks)


def _by_statement(found: Iterable[Mark]) -> Iterable[Mark]:
    """Each statement once: a file has it also in a function within a function."""
    return {(each.file, each.statement): each for each in found}.values()


def _own_value(mark: Mark, ranks: Sequence[Process]) -> Finding:
    return Finding(
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


def _loads_alone(mark: Mark, ranks: Sequence[Process]) -> Finding:
    names, _, condition = mark.about.partition("; ")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=ranks[0].process,
        others=tuple(each.process for each in ranks[1:]),
        subject=f"{mark.file} {mark.statement.line}",
        summary=(
            f"the ranks may step with different states of {names}: one rank alone loads them, by "
            f"{mark_words(mark)}"
        ),
        evidence=(
            f"`{condition}` decides who loads; nothing else in its function gives {names} to a "
            "call, such as one that loads or broadcasts its state on the other ranks",
            f"the job has {all_called(ranks)}",
        ),
        cause=(
            "DistributedDataParallel sends the parameters and buffers of rank 0 to the other ranks "
            f"once, when it is made, and never the states of optimizers and schedulers: {names} "
            "begins anew on the others. The gradients are averaged, but each rank takes its "
            "steps with moments and a learning rate of its own, so that the weights differ more "
            "and more, and the checkpoint that one rank saves shows only its own. Nothing fails. "
            "If the others take no steps with it, or there was nothing to load, nothing is wrong."
        ),
        advice=(
            f"Load on every rank (torch.load with map_location), or broadcast the state of {names} "
            "from that rank (dist.broadcast_object_list) and load it on the others. To see whether "
            "they differ, log optimizer.param_groups[0]['lr'] and a sum of the parameters on every "
            "rank. A barrier, another seed or DistributedDataParallel itself do not help."
        ),
    )
