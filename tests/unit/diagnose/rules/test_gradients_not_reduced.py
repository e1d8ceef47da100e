from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules.results import gradients_not_reduced
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark, MarkKind, Statement
from tests.builders.snapshots import found, main, only, process, snapshot_of


def rank(number: int, size: int = 2, **model: Any) -> Process:
    """A rank with one wrapped model, as its hook reads it; by default its forward never runs."""
    told = {
        "site": "trainer.py:36",
        "is_forward_run": False,
        "is_reducing": True,
        "has_own_hook": False,
        "updates": 300,
        "collectives": 30,
        "lasting_ns": 40 * 10**9,
        **model,
    }
    group = {"size": size, "rank": number, "ranks": "0, 1", "backend": "gloo"}
    gauges = {"collectives": {"groups": {"0": group}, "states": [], "models": [told]}}
    return process(300 + number, "rank", label=f"rank {number}", more={"gauges": gauges})


def test_a_model_whose_forward_never_runs_is_reported_once_for_all_ranks() -> None:
    text = "return model.module if isinstance(model, DistributedDataParallel) else model"
    unwraps = Mark("unwrapped", "/job/trainer.py", "unwrap", "model.module", Statement(24, text))
    job = snapshot_of(main(), rank(0), rank(1, updates=290), marks=(unwraps,))

    finding = only(gradients_not_reduced.check, job)

    assert finding.severity is Severity.WARNING
    assert "wrapped at trainer.py:36 are not averaged among the ranks" in finding.summary
    assert "rank 0 (300) and rank 1 (301)" in finding.summary
    counts = "rank 1 (301): a parameter of it was changed 290 times in 40 s, with 30 collectives"
    assert counts in finding.evidence
    assert f"`{text}` at trainer.py:24 unwrap" in finding.evidence
    assert "no_sync" not in f"{finding.summary} {finding.cause} {finding.advice}"


def test_no_sync_that_is_left_on_is_reported_with_its_line() -> None:
    line = Mark("no-sync", "/job/t.py", "step", "", Statement(9, "with self.model.no_sync():"))
    left_on = {"is_forward_run": True, "is_reducing": False, "collectives": 0}
    job = snapshot_of(main(), rank(0, **left_on), rank(1, **left_on), marks=(line,))

    finding = only(gradients_not_reduced.check, job)

    assert "every forward pass is inside of no_sync() in rank 0 (300)" in finding.summary
    assert finding.evidence[-1] == "`with self.model.no_sync():` at t.py:9 step"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param({"is_forward_run": True}, id="its forward runs"),
        pytest.param({"collectives": 200}, id="the program may average by calls of its own"),
        pytest.param({"has_own_hook": True}, id="a hook of its own reduces"),
        pytest.param({"updates": 3}, id="copies of weights, not training"),
        pytest.param({"lasting_ns": 10**9}, id="just begun"),
        pytest.param({"size": 1}, id="one rank alone"),
        pytest.param({"updates": "many"}, id="hostile"),
        pytest.param(
            {"is_forward_run": True, "is_reducing": False, "updates": 4},
            id="between two passes of an accumulation",
        ),
    ],
)
def test_a_model_that_is_reduced_or_not_trained_is_not_reported(model: dict[str, Any]) -> None:
    assert found(gradients_not_reduced.check, snapshot_of(main(), rank(0, **model))) == []


def test_a_rank_without_a_wrapped_model_is_not_reported() -> None:
    gauge = {"groups": {}, "error": "no recorder"}
    bare = process(300, "rank", more={"gauges": {"collectives": gauge}})

    assert found(gradients_not_reduced.check, snapshot_of(main(), bare)) == []


GROWS = Mark(
    "replaces-module",
    "/job/model.py",
    "add_classes",
    "self.head",
    Statement(32, "self.head = nn.Linear(old.in_features, n)"),
)
ASKS = Mark(
    "calls-wrapped",
    "/job/train.py",
    "next_task",
    "add_classes",
    Statement(38, "self.model.module.add_classes(3)"),
)


def test_a_part_that_is_made_anew_in_a_wrapped_model_is_possible_by_its_source() -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]
    job = snapshot_of(main(), *ranks, marks=(GROWS, ASKS))

    finding = only(gradients_not_reduced.check, job)

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert finding.summary == (
        "self.head is made anew at model.py:32 add_classes in a model that is wrapped already: its "
        "gradients are not averaged among rank 0 (300) and rank 1 (301)"
    )
    assert "`self.model.module.add_classes(3)` at train.py:38 next_task" in finding.evidence
    alone = snapshot_of(main(), ranks[0], marks=(GROWS, ASKS))
    assert found(gradients_not_reduced.check, alone) == []
    other = snapshot_of(main(), *ranks, marks=(GROWS, ASKS._replace(about="eval")))
    assert found(gradients_not_reduced.check, other) == []


THAWS = Mark(
    "unfreezes",
    "/job/train.py",
    "on_epoch",
    "module.backbone, 31",
    Statement(38, "p.requires_grad = True"),
)
WRAPS = Mark("wraps", "/job/train.py", "fit", "DDP", Statement(74, "model = DDP(module)"))


def test_parameters_that_are_unfrozen_later_are_possible_by_the_source() -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]

    finding = only(gradients_not_reduced.check, snapshot_of(main(), *ranks, marks=(THAWS, WRAPS)))

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert finding.summary.startswith(
        "the parameters of module.backbone are frozen at train.py:31 and unfrozen at train.py:38 "
        "on_epoch: if the model is wrapped in between"
    )
    assert "`model = DDP(module)` at train.py:74 fit wraps the model" in finding.evidence
    for marks in ((THAWS,), (WRAPS,), (THAWS, WRAPS._replace(about="FSDP"))):
        assert found(gradients_not_reduced.check, snapshot_of(main(), *ranks, marks=marks)) == []
    alone = snapshot_of(main(), ranks[0], marks=(THAWS, WRAPS))
    assert found(gradients_not_reduced.check, alone) == []


PAST = Mark(
    "trains-unwrapped",
    "/job/train.py",
    "train_epoch",
    "model",
    Statement(37, "memory = model.module.encode(x)"),
)
WRAPPED = Mark("wraps", "/job/train.py", "main", "DDP", Statement(68, "model = DDP(Net())"))


def test_a_model_that_is_trained_past_its_wrapper_is_possible_by_its_source() -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]

    finding = only(gradients_not_reduced.check, snapshot_of(main(), *ranks, marks=(PAST, WRAPPED)))

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert finding.summary.startswith(
        "train.py:37 train_epoch trains the module inside of model: where that is wrapped by "
        "DistributedDataParallel, the gradients are not averaged"
    )
    assert "That model is wrapped there was not observed" in finding.cause
    assert "call the wrapper itself" in finding.advice


@pytest.mark.parametrize("marks", [(PAST,), (WRAPPED,), ()])
def test_a_module_that_nothing_wraps_is_trained_as_it_is(marks: tuple[Mark, ...]) -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]

    assert found(gradients_not_reduced.check, snapshot_of(main(), *ranks, marks=marks)) == []


def test_where_the_hook_reads_the_wrapped_models_the_source_does_not_count() -> None:
    well = rank(0, is_forward_run=True), rank(1, is_forward_run=True)

    job = snapshot_of(main(), *well, marks=(PAST, WRAPPED))

    assert found(gradients_not_reduced.check, job) == []


BY_HAND = Mark(
    "changed-by-hand",
    "/job/net.py",
    "local_update",
    "self.lateral",
    Statement(32, "self.lateral.data.add_(corr)"),
)


def test_a_parameter_that_is_changed_by_the_batch_of_each_rank_is_possible_by_its_source() -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]

    job = snapshot_of(main(), *ranks, marks=(BY_HAND, WRAPS))
    finding = only(gradients_not_reduced.check, job)

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert finding.summary == (
        "each of rank 0 (300) and rank 1 (301) may have a self.lateral of its own: net.py:32 "
        "local_update changes it by the batch of its rank, and DistributedDataParallel averages "
        "only gradients"
    )
    assert "local_update(), which forward() calls, changes the parameter" in finding.cause
    assert "If all ranks get the same batches, nothing is wrong" in finding.cause


def shared(kind: MarkKind, text: str) -> Mark:
    return Mark(kind, "/job/train.py", "share", "all_reduce", Statement(50, text))


@pytest.mark.parametrize(
    ("marks", "ranks"),
    [
        ((BY_HAND,), 2),
        ((WRAPS,), 2),
        ((BY_HAND, WRAPS), 1),
        ((BY_HAND, WRAPS._replace(about="FSDP")), 2),
        ((BY_HAND, WRAPS, shared("shares-parameters", "for p in net.parameters():")), 2),
        ((BY_HAND, WRAPS, shared("collective", "dist.all_reduce(layer.lateral.data)")), 2),
    ],
)
def test_a_parameter_that_may_be_shared_is_not_reported(
    marks: tuple[Mark, ...], ranks: int
) -> None:
    those = [process(300 + n, "rank", label=f"rank {n}") for n in range(ranks)]

    assert found(gradients_not_reduced.check, snapshot_of(main(), *those, marks=marks)) == []


def test_a_collective_of_something_else_shares_no_parameter() -> None:
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]
    other = shared("collective", "dist.all_reduce(mean)")

    only(gradients_not_reduced.check, snapshot_of(main(), *ranks, marks=(BY_HAND, WRAPS, other)))
