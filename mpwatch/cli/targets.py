"""The process a command is about, and the hook that is to be brought into it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mpwatch.cli.failures import EXIT_NO_SUCH_PROCESS, Failure
from mpwatch.collect.errors import CannotWatch
from mpwatch.collect.proc import identify
from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.observe.intake import HookUse


def target(pid: int, *, may_be_hidden: bool = False) -> ProcessId:
    """The process with this number, if it can be watched.

    Args:
        pid: The process.
        may_be_hidden: Whether one of which only the outside shows will do.

    Raises:
        Failure: It cannot, with the reason, the command that helps and the exit code.
    """
    try:
        return identify(pid, may_be_hidden=may_be_hidden)
    except CannotWatch as error:
        raise Failure(error.message, error.fix, error.exit_code) from None


def ended_meanwhile(pid: int) -> Failure:
    """The failure of a process that was there a moment ago."""
    return Failure(
        f"Process {pid} ended before it could be read.", "mpwatch ps", EXIT_NO_SUCH_PROCESS
    )


def hook_use(arguments: argparse.Namespace, default: HookUse = "use") -> HookUse:
    """What `--hook` and `--no-hook` say."""
    if arguments.no_hook:
        return "ignore"
    if getattr(arguments, "hook", False):
        return "bring"
    return default


def bring(
    samples: Sequence[ProcSample], report: Callable[[HookStatus], None], *, again: bool = False
) -> None:
    """Bring the hook into processes; see `mpwatch.observe.attach_schedule.Bring`."""
    import time

    from mpwatch.attach import Attached, bring_in_tree

    def tell(attached: Attached) -> None:
        reason = f"{attached.reason} {attached.fix}".strip()
        at_s, state = time.monotonic(), attached.state
        report(HookStatus(attached.process, at_s, state, reason, passes=attached.passes))

    bring_in_tree(samples, tell, again=again)
