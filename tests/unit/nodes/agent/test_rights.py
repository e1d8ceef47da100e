"""What an agent may not read is one sentence with what mends it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.nodes.agent.rights import for_agent, stackless_words
from tests.unit.nodes.jobs import rank, snapshot

FILTER = "a seccomp filter forbids the ptrace system call here: docker run --cap-add=SYS_PTRACE"
YAMA = (
    "Yama allows a process to trace only its own children (kernel.yama.ptrace_scope = 1): "
    "sudo sysctl kernel.yama.ptrace_scope=0; or sudo mpwatch attach 1001."
)


def test_processes_without_stacks_for_one_reason_are_one_sentence() -> None:
    ranks = [rank(number) for number in range(3)]
    denied = [
        replace(each, problems=(f"stacks: No stacks of process {each.pid}: {FILTER}.",))
        for each in ranks
    ]

    assert stackless_words([snapshot(denied)]) == f"No stacks of 3 processes: {FILTER}."
    assert stackless_words([snapshot([*denied[:1], *ranks[1:]])]) == (
        f"No stacks of process {denied[0].pid}: {FILTER}."
    )


@pytest.mark.parametrize(
    "problem",
    [
        "stacks: Process 1000 ended meanwhile.",
        "stacks: Process 1000 could not be traced for a moment.",
        "stacks: No stacks of process 1000 while it is stopped: no reason given.",
        "stacks: No stacks of process 1000: process 7 (py-spy) traces it already, and the kernel"
        " allows one: end that debugger, or kill 7.",
        "smaps_rollup: Permission denied",
    ],
)
def test_what_passes_by_itself_is_not_a_missing_right(problem: str) -> None:
    assert stackless_words([snapshot([replace(rank(0), problems=(problem,))])]) == ""


def test_a_command_that_helps_is_the_option_that_starts_the_agent() -> None:
    problem = f"stacks: No stacks of process 1001: {YAMA}"
    found = stackless_words([snapshot([replace(rank(1), problems=(problem,))])])

    assert found.endswith('sudo sysctl kernel.yama.ptrace_scope=0; or --agent "sudo mpwatch".')
    assert for_agent("docker exec --user 0 NAME mpwatch attach 42, or docker run ...") == (
        '--agent "docker exec -i --user 0 NAME mpwatch", or docker run'
    )
    assert for_agent("as root: mpwatch attach 42") == "start the agent as root"
