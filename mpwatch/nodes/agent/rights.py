"""What an agent may not read on its node: one sentence with what is missing and what mends it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.process import procfs
from mpwatch.collect.process.identify import is_called_like_python
from mpwatch.model.snapshot import Snapshot

_STACKLESS = re.compile(
    r"stacks: (?:No stacks of process \d+: (?!process \d+.* traces it already)"
    r"|(?=py-spy is not installed))(.*)\."
)
"""A problem of a process of which no stacks can be taken, now and later (`PySpy`)."""
_COMMAND = re.compile(
    r"((?:sudo|setpriv|docker exec)\b[^,;()]*?) mpwatch attach \d+|(as root: )?mpwatch attach \d+"
)
UIDS_SHOWN = 3


def hidden_words(proc: str = "/proc") -> str:
    """Whose Python processes the agent may not inspect, and why; empty if there are none.

    Whether they are of torch cannot be known: their mappings and environments are hidden, too.
    """
    pids: dict[int, list[int]] = {}
    for pid in procfs.pids(proc):
        owner = _hidden_owner(proc, pid)
        if owner is not None:
            pids.setdefault(owner, []).append(pid)
    if not pids:
        return ""
    # Those of root are mostly services.
    owners = sorted(pids, key=lambda uid: (uid == 0, uid))
    named = [f"{len(pids[uid])} of uid {uid}" for uid in owners[:UIDS_SHOWN]]
    named += [f"{len(owners) - UIDS_SHOWN} other uids"] if len(owners) > UIDS_SHOWN else []
    obstacle = ptrace_access.why_hidden(newest := pids[owners[0]][-1], proc)
    return (
        f"Python processes that may be the job are hidden ({', '.join(named)}): of {newest}, "
        f"{obstacle.reason}; {for_agent(obstacle.fix)}."
    )


def stackless_words(snapshots: Sequence[Snapshot]) -> str:
    """Of which processes no stacks can be taken, and why; empty if there are none."""
    found: dict[str, list[int]] = {}
    for snapshot in snapshots:
        for process in snapshot.living():
            for match in filter(None, map(_STACKLESS.fullmatch, process.problems)):
                found.setdefault(for_agent(match.group(1)), []).append(process.pid)
    if not found:
        return ""
    words, pids = max(found.items(), key=lambda item: len(item[1]))
    count = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    return f"No stacks of {count}: {words}."


def for_agent(fix: str) -> str:
    """What removes an obstacle, with the option that starts the agent in place of a command."""

    def replaced(match: re.Match[str]) -> str:
        prefix, as_root = match.groups()
        if prefix:
            # The agent is spoken to through its input.
            return f'--agent "{prefix.replace("docker exec", "docker exec -i")} mpwatch"'
        return "start the agent as root" if as_root else "the agent"

    return _COMMAND.sub(replaced, fix).removesuffix(".").removesuffix(" ..").removesuffix(",")


def _hidden_owner(proc: str, pid: int) -> int | None:
    """The user of a process that is Python by its name and may not be inspected, else `None`."""
    try:
        os.readlink(f"{proc}/{pid}/exe")
    except PermissionError:
        return os.stat(f"{proc}/{pid}").st_uid if is_called_like_python(proc, pid) else None
    except OSError:
        return None
    return None
