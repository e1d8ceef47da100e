"""Starts the programs that mpwatch needs for a target, apart from mpwatch's caller.

Root may be looking at the process of a user: what runs as that user, or reads what that user
controls, gets nothing of root's. It has a session of its own and so no controlling terminal, `/` as
folder, an empty environment, and of the descriptors only those that it is given. Those that the
caller left open to the programs it starts (`9</etc/shadow` in a shell) are closed in the child
before it becomes the program.

`posix_spawn` of Python can neither change the folder nor close what it does not know; `Popen`
starts the child by vfork, so the size of this process does not matter either.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

NOWHERE = subprocess.DEVNULL


def start(
    command: Sequence[str],
    *,
    stdin: int = NOWHERE,
    stdout: int = NOWHERE,
    stderr: int = NOWHERE,
    kept: Collection[int] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Start a program.

    Args:
        command: Path of the program, and its arguments.
        stdin: Descriptor for its standard input; by default, of the null device.
        stdout: For its standard output.
        stderr: For its standard error.
        kept: Descriptors that it has under the same numbers, all above 2.
        environment: All of its environment.

    Returns:
        Its pid; the caller waits for its end.

    Raises:
        OSError: It cannot be started.
    """
    child = subprocess.Popen(
        list(command), stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=kept,
        cwd="/", env=environment, start_new_session=True,
    )  # fmt: skip
    child.returncode = 0  # else this object would wait for it, too
    return child.pid
