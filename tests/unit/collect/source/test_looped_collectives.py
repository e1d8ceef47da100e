"""Collectives in loops over tensors."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def found(body: str) -> list[tuple[str, int]]:
    """What is looped over, with which collective, and the line of the call."""
    text = "import torch.distributed as dist\n\n" + textwrap.dedent(body).lstrip("\n")
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.about, each.statement.line)
        for each in marks("/home/me/train.py", module)
        if each.kind == "looped-collective"
    ]


def averaging(loop: str, *body: str) -> list[tuple[str, int]]:
    inner = "".join(f"        {each}\n" for each in body)
    return found(f"def average(model, group):\n    {loop}\n{inner}")


OVER = "for p in model.parameters():"


@pytest.mark.parametrize(
    ("loop", "body", "about"),
    [
        (OVER, ("dist.all_reduce(p.grad)",), "all_reduce, 4-5, model.parameters()"),
        (OVER, ("dist.all_reduce(p.grad.data, group=group)",), "all_reduce, 4-5,"),
        (OVER, ("torch.distributed.reduce(p.grad, 0)",), "reduce, 4-5,"),
        (OVER, ("dist.all_reduce(p.grad, async_op=False)",), "all_reduce,"),
        (OVER, ("w = dist.all_reduce(p.grad, async_op=True)", "w.wait()"), "all_reduce, 4-6,"),
        ("for k, v in model.state_dict().items():", ("dist.broadcast(v, 0)",), "broadcast, 4-5,"),
        ("for param in group:", ("dist.all_gather(parts, param)",), "all_gather, 4-5, group"),
        ("for t in tensors:", ("all_reduce(t)",), "all_reduce, 4-5, tensors"),
        ("for t in tensors:", ("all_reduce(t.clone())",), "all_reduce, 4-5, tensors"),
    ],
)
def test_a_collective_of_each_tensor_that_blocks(
    loop: str, body: tuple[str, ...], about: str
) -> None:
    ((said, line),) = averaging(loop, *body)

    assert said.startswith(about)
    assert line == 5


@pytest.mark.parametrize(
    ("loop", "body"),
    [
        (OVER, ("handles.append(dist.all_reduce(p.grad, async_op=True))",)),
        ("for bucket in buckets:", ("dist.all_reduce(bucket)",)),
        ("for bucket in buckets:", ("flat = flatten(bucket)", "dist.all_reduce(flat)")),
        ("for batch in loader:", ("dist.all_reduce(batch)",)),
        ("for step in range(steps):", ("dist.all_reduce(loss)",)),
        ("for source in range(world):", ("dist.broadcast(table, source)",)),
        ("for t in (loss, correct):", ("dist.all_reduce(t)",)),
        (OVER, ("p.grad /= world",)),
        ("for row in rows:", ("functools.reduce(add, row)",)),
        ("for row in rows:", ("row.reduce(3)",)),
        ("for row in rows:", ("reduce(add, row)",)),
        ("if model:", ("dist.all_reduce(model)",)),
    ],
)
def test_other_collectives_and_loops(loop: str, body: tuple[str, ...]) -> None:
    assert averaging(loop, *body) == []


def test_a_function_that_reduces_its_argument_counts_where_a_loop_calls_it() -> None:
    text = """
        def reduce_tensor(tensor):
            total = tensor.clone()
            dist.all_reduce(total)
            return total / dist.get_world_size()

        def average(model):
            for p in model.parameters():
                p.grad = reduce_tensor(p.grad)

        def log(loss):
            return reduce_tensor(loss)
    """

    assert found(text) == [("all_reduce, 9-10, model.parameters()", 10)]
