"""Ranks train a model that DistributedDataParallel wraps, and its gradients are never averaged.

Those of the whole model, by the readings of the hook; or, by the source, of a model that is trained
past its wrapper, of a part that is made anew, or that was frozen when the model was wrapped. And
parameters that the model changes without gradients, which it does not average either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from mpwatch.describe.findings import capital
from mpwatch.diagnose.analysis.distributed.ranks import ranks_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "gradients-not-reduced"
IS_OF_RESULTS = True

UPDATES = 20
"""Changes of a parameter that no initialisation, no copy and no loading of a state makes."""
LASTING_S = 10.0
LEAST_PER_UPDATE = 0.2
"""A backward pass that reduces gradients calls at least one collective; optimizers of torch change
a parameter one to three times a step (torch 2.13). With more than this, the program may average
them by calls of its own."""
_DDP = ("DDP", "DistributedDataParallel")
LINES = 3
"""Lines of the program that are quoted."""


class _Wrapped(Struct, frozen=True):
    """A wrapped model of one rank, as its hook reads it."""

    rank: Process
    site: str
    is_forward_run: bool
    updates: int
    collectives: int
    lasting_s: float


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each model, by the line that wraps it and by what is left out.

    The reducer of DistributedDataParallel is prepared in the forward pass of the wrapper, outside
    of `no_sync`. Without that a backward pass leaves the gradients of each rank as they are. That
    parameters are changed meanwhile shows that the model is trained, and that next to no collective
    is called that nothing else averages it. A model with a communication hook of its own is left
    out.
    """
    found: defaultdict[tuple[str, bool], list[_Wrapped]] = defaultdict(list)
    for process in index.snapshot.living():
        for model in _untouched(process):
            found[model.site, model.is_forward_run].append(model)
    for models in found.values():
        yield _finding(index, models)
    if not found:
        yield from _past_the_wrapper(index)
        yield from _made_anew(index)
        yield from _unfrozen(index)
    yield from _changed_by_hand(index)


def _past_the_wrapper(index: Index) -> Iterator[Finding]:
    """A model that is trained past its wrapper, as the source shows.

    Where the hook reads the forward passes of the wrapper, it knows better.
    """
    ranks = ranks_of(index)
    past, wraps = marks(index, "trains-unwrapped"), marks(index, "wraps")
    wraps = [each for each in wraps if each.about in _DDP]
    if len(ranks) < 2 or not past or not wraps or any(map(_knows_models, ranks)):
        return
    mark, wrap = past[0], wraps[0]
    yield _by_source(
        ranks,
        subject=f"past {mark.about}",
        summary=(
            f"{mark_place(mark)} trains the module inside of {mark.about}: where that is wrapped "
            "by DistributedDataParallel, the gradients are not averaged among "
            f"{all_called(ranks)}"
        ),
        evidence=(
            mark_words(mark),
            f"{mark.function}() runs a backward pass and does not call {mark.about}() itself",
            f"{mark_words(wrap)} wraps a model",
        ),
        cause=(
            f"That {mark.about} is wrapped there was not observed. If it is, {_PAST_WRAPPER}. Each "
            "trains a model of its own: the weights and losses of the ranks part, and nothing "
            "fails."
        ),
        advice=_CALL_THE_WRAPPER,
    )


_PAST_WRAPPER = (
    "the loss is computed from the module inside of the wrapper. Only the forward pass of the "
    "wrapper prepares the averaging of gradients in the backward pass, so that each rank takes its "
    "steps from the gradients of its own data"
)
_CALL_THE_WRAPPER = (
    "Compute the loss from what the wrapped model returns: call the wrapper itself, and move what "
    "a method of the module does now into its forward(). Calling the module inside of it "
    "(model.module) is fine for evaluation and for saving."
)


def _knows_models(rank: Process) -> bool:
    """Whether its hook reads the models that it has wrapped."""
    gauge = rank.gauges.get("collectives")
    return isinstance(gauge, Mapping) and bool(gauge.get("models"))


def _made_anew(index: Index) -> Iterator[Finding]:
    """A part of the wrapped model that a method makes anew, as the source shows.

    DistributedDataParallel hooks the parameters that are there when it is made.
    """
    ranks = ranks_of(index)
    parts = {each.function: each for each in marks(index, "replaces-module")}
    calls = [each for each in marks(index, "calls-wrapped") if each.about in parts]
    if len(ranks) < 2 or not calls:
        return
    call, part = calls[0], parts[calls[0].about]
    yield _by_source(
        ranks,
        subject=f"made anew {part.about}",
        summary=(
            f"{part.about} is made anew at {mark_place(part)} in a model that is wrapped already: "
            f"its gradients are not averaged among {all_called(ranks)}"
        ),
        evidence=(mark_words(call), mark_words(part)),
        cause=(
            f"{mark_words(call)} calls {part.function}() of the module inside of the wrapper, and "
            f"{mark_words(part)} replaces parameters. DistributedDataParallel averages the "
            "gradients of the parameters that it found when it was made: the new ones are neither "
            "sent from rank 0 to the others nor averaged. Each rank trains its own "
            f"{part.about.rpartition('.')[2]} from then on, without an error; "
            "find_unused_parameters=True hides that the old one is missing. That this line has "
            "run was not observed."
        ),
        advice=(
            f"Wrap the model again (DistributedDataParallel(model.module)) after each {call.about}"
            "() on all ranks, and make the optimizer after that. Or reserve the parameters before "
            "the model is wrapped. Seeds, batch sizes and learning rates do not help."
        ),
    )


def _by_source(ranks: Sequence[Process], **texts: Any) -> Finding:
    """A finding of which only the source shows that it may be so."""
    others = tuple(each.process for each in ranks[1:])
    return Finding(
        RULE, Severity.INFO, is_doubtful=True, process=ranks[0].process, others=others, **texts
    )


def _unfrozen(index: Index) -> Iterator[Finding]:
    """Parameters that are trained later than the model is wrapped, as the source shows.

    DistributedDataParallel hooks the parameters that require gradients when it is made (torch 1.0
    to 2.14, `_build_params_for_reducer`).
    """
    ranks, found = ranks_of(index), marks(index, "unfreezes")
    wraps = [each for each in marks(index, "wraps") if each.about in _DDP]
    if len(ranks) < 2 or not found or not wraps:
        return
    mark, wrap = found[0], wraps[0]
    name, _, frozen = mark.about.rpartition(", ")
    file = mark.file.rpartition("/")[2]
    yield _by_source(
        ranks,
        subject=f"unfrozen {name}",
        summary=(
            f"the parameters of {name} are frozen at {file}:{frozen} and unfrozen at "
            f"{mark_place(mark)}: if the model is wrapped in between, their gradients are not "
            f"averaged among {all_called(ranks)}"
        ),
        evidence=(mark_words(mark), f"{mark_words(wrap)} wraps the model"),
        cause=(
            "DistributedDataParallel averages the gradients of the parameters that require them "
            f"when it is made. Those of {name} that are frozen then and unfrozen later get "
            "gradients of the data of their own rank, which are never averaged: each rank trains "
            "its own from then on, and the weights and losses of the ranks part. Nothing fails. "
            "That these lines have run in this order was not observed."
        ),
        advice=(
            f"Wrap the model anew (DistributedDataParallel) on all ranks right after {name} was "
            "unfrozen; or freeze it only after the model was wrapped, with "
            "find_unused_parameters=True. To see it, compare a sum of its weights on all ranks. "
            "Another learning rate, seed or SyncBatchNorm does not help."
        ),
    )


def _changed_by_hand(index: Index) -> Iterator[Finding]:
    """Parameters that the forward pass changes in place by its own batch, as the source shows.

    DistributedDataParallel sends parameters to the other ranks when it is made, and buffers in each
    forward pass; after that it averages gradients alone (torch 2.1 to 2.14). Not where any function
    that was read communicates and goes through parameters, or names this one.
    """
    ranks, found = ranks_of(index), marks(index, "changed-by-hand")
    wraps = [each for each in marks(index, "wraps") if each.about in _DDP]
    if len(ranks) < 2 or not found or not wraps or marks(index, "shares-parameters"):
        return
    mark, wrap = found[0], wraps[0]
    name = mark.about.rpartition(".")[2]
    texts = [each.statement.text for each in marks(index, "collective")]
    if any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts):
        return
    is_it = mark.function == "forward"
    where = "forward()" if is_it else f"{mark.function}(), which forward() calls,"
    yield _by_source(
        ranks,
        subject=f"by hand {mark.about}",
        summary=(
            f"each of {all_called(ranks)} may have a {mark.about} of its own: {mark_place(mark)} "
            "changes it by the batch of its rank, and DistributedDataParallel averages only "
            "gradients"
        ),
        evidence=(mark_words(mark), f"{mark_words(wrap)} wraps a model"),
        cause=(
            f"{where} changes the parameter {mark.about} in place, by what it has computed from "
            "the batch. DistributedDataParallel sends the parameters of rank 0 to the others once, "
            "when the model is wrapped, and averages only gradients after that: a change by hand "
            "stays on its rank. Nothing that was read of the program shares it between the ranks. "
            "With different batches they come to different values from the first step on, a "
            "checkpoint has those of the rank that writes it, and nothing waits or fails. If all "
            "ranks get the same batches, nothing is wrong. That this line has run was not observed."
        ),
        advice=(
            f"Average what {mark.about} is changed by before that line (all_reduce on all ranks, "
            "divided by their number), or average or broadcast it after the line. To see whether "
            "the ranks differ, log its norm on every rank. As a buffer it would be that of rank 0 "
            "in each forward pass, and what the others have learned is lost. Seeds, a smaller "
            "learning rate or find_unused_parameters do not help."
        ),
    )


def _untouched(process: Process) -> Iterator[_Wrapped]:
    """The models of a rank whose gradients are not reduced."""
    gauge = process.gauges.get("collectives")
    if not isinstance(gauge, Mapping) or not _is_of_several(gauge.get("groups")):
        return
    models = gauge.get("models")
    for model in models if isinstance(models, Sequence) else ():
        if not isinstance(model, Mapping) or model.get("has_own_hook") is not False:
            continue
        updates, collectives = model.get("updates"), model.get("collectives")
        lasting_ns, is_run = model.get("lasting_ns"), model.get("is_forward_run")
        if (
            not isinstance(updates, int)
            or not isinstance(collectives, int)
            or not isinstance(lasting_ns, int)
            or (is_run is not False and model.get("is_reducing") is not False)
        ):
            continue
        lasting_s = lasting_ns / 1e9
        if (
            updates >= UPDATES
            and lasting_s >= LASTING_S
            and collectives < LEAST_PER_UPDATE * updates
        ):
            site = model.get("site")
            place = site if isinstance(site, str) else ""
            yield _Wrapped(process, place, is_run is not False, updates, collectives, lasting_s)


def _is_of_several(groups: object) -> bool:
    """Whether a process is in a group of several ranks."""
    sizes = [
        group.get("size")
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping)
    ]
    return any(isinstance(size, int) and size > 1 for size in sizes)


def _finding(index: Index, models: Sequence[_Wrapped]) -> Finding:
    first = models[0]
    ranks = [each.rank for each in models]
    wrapped = f"the model wrapped at {first.site}" if first.site else "a wrapped model"
    if first.is_forward_run:
        why = "every forward pass is inside of no_sync()"
        seen = f"no_sync() was in force each time it was read in {first.lasting_s:.0f} s"
        cause = (
            "Within no_sync() DistributedDataParallel leaves the gradients of each backward pass "
            "as they are, for a later pass outside of it to average. That pass does not come, and "
            "the optimizer steps meanwhile"
        )
        advice = (
            "Leave no_sync() for the forward and the backward pass before each step of the "
            "optimizer: use it only for the other passes of an accumulation."
        )
        lines = marks(index, "no-sync")
    else:
        why = "the forward pass of DistributedDataParallel never runs"
        seen = "its own forward pass has not run once since it was wrapped"
        cause, advice = capital(_PAST_WRAPPER), _CALL_THE_WRAPPER
        lines = marks(index, "unwrapped")
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=first.rank.process,
        others=tuple(each.process for each in ranks[1:]),
        subject=f"{first.site} {first.is_forward_run}",
        summary=(
            f"the gradients of {wrapped} are not averaged among the ranks: {why} in "
            f"{all_called(ranks)}"
        ),
        evidence=(
            seen,
            *(
                f"{called(each.rank)}: a parameter of it was changed "
                f"{counted(each.updates, 'time')} in {each.lasting_s:.0f} s, with "
                f"{counted(each.collectives, 'collective')}"
                for each in models[:3]
            ),
            *map(mark_words, lines[:LINES]),
        ),
        cause=(
            f"{cause}. Each trains a model of its own: the weights differ more with every step, "
            "and a checkpoint of one rank has seen the data of that rank only. Nothing fails."
        ),
        advice=advice,
    )
