"""What all launchers share: the command of an agent, and running a command of an engine."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Literal, NamedTuple, Protocol, TypeAlias

from mpwatch.model.sanitize import clean

QUERY_S = 20.0
"""How long an engine may take to list the nodes of a job."""
OUTPUT_BYTES_LIMIT = 1 << 20
_HAS_MPWATCH = (
    "import importlib.util, sys; sys.exit(importlib.util.find_spec('mpwatch.__main__') is None)"
)
START_S = 45.0
"""How long a node may take from the start of its launcher to its first message."""
GRACE_S = 3.0
"""How long agents may take to end once their input is closed."""


class Pipes(Protocol):
    """The pipes to one agent, and what is at their other end."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Leads to the agent."""
        ...

    @property
    def stdout(self) -> IO[bytes] | None:
        """What the agent sends."""
        ...

    @property
    def stderr(self) -> IO[bytes] | None:
        """What the agent, or what connects to it, writes to standard error."""
        ...

    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        ...

    def kill(self) -> None:
        """End the connection to the agent, which then ends with its input."""
        ...

    def kill_all(self) -> None:
        """End the connection to the agent with all that it has started."""
        ...

    def wait(self) -> int | None:
        """Wait for the end; the exit code, negative for a signal, `None` if there is none."""
        ...


class CarriedPipes:
    """Pipes whose other ends are carried to the agent by another thread or program; see `Pipes`."""

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        """Take over the descriptors of the ends on this side."""
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb", 0)
        self.stderr: IO[bytes] | None = os.fdopen(stderr, "rb", 0)
        self._watch = select.poll()
        self._watch.register(stdout, 0)

    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        if self.stdout is None or self.stdout.closed:
            return True
        return bool(self._watch.poll(0))

    def kill(self) -> None:
        """Close the pipes; what carries them then ends the agent and its launcher."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    kill_all = kill

    def wait(self) -> int | None:
        """The exit code of the launcher, if it is known."""
        return None


class ChildPipes(subprocess.Popen[bytes]):
    """A process of an engine, whose standard input and output lead to the agent.

    It has a session of its own: ctrl-c reaches the head alone, which then ends its agents, and an
    engine's program that hangs is killed with all that it has started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    def has_ended(self) -> bool:
        """Whether the process has exited; it is not reaped: its number stays its own."""
        if self.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill_all(self) -> None:
        """Kill the process and all that it has started."""
        os.killpg(self.pid, signal.SIGKILL)


class RelayWay(NamedTuple):
    """How a node reaches others of its job; see `mpwatch.nodes.launchers.relays`."""

    host: str
    """Its name for the others."""
    group: str
    """Nodes of the same group reach each other."""
    command: Callable[[Sequence[str]], tuple[str, ...]]
    """The command that starts a relay there, to the nodes with these names."""


class Launch(NamedTuple):
    """One node and the command whose standard input and output lead to its agent."""

    name: str
    command: tuple[str, ...]
    check: str = "mpwatch --version"
    """A command that shows whether mpwatch runs there."""
    open: Callable[[], Pipes] | None = None
    """Makes the pipes where no process of this machine leads to the node; `command` then only says
    what was called. Raises `CannotLaunch` where there is no node any more."""
    start_s: float = START_S
    """How long its first message may take from the start."""
    explain: Callable[[str], str] | None = None
    """Says in one sentence why the connection to the agent has ended, by what the engine's program
    has printed to standard error; an empty string if that says nothing more."""

    is_refused: Callable[[str], bool] | None = None
    """Says, by what the engine's program has printed to standard error, whether the way was only
    refused for the moment, so that another attempt may succeed."""
    environment: Mapping[str, str] | None = None
    """Of the command, if it is not that of this process."""
    relay: RelayWay | None = None
    """`None` where it cannot reach others."""
    descriptors: int = 3
    """How many descriptors its pipes take in this process."""

    def start(self) -> Pipes:
        """Make the pipes to an agent.

        Raises:
            OSError: The command cannot be started.
            CannotLaunch: The node is gone.
        """
        return self.open() if self.open is not None else ChildPipes(self.command, self.environment)


class ChangingNodes(Protocol):
    """The nodes of a job on an engine whose nodes join and leave."""

    def launches(self) -> Sequence[Launch]:
        """The nodes as they are now, without those that have left as planned; names stay."""
        ...

    def close(self) -> None:
        """End what was started to know the nodes."""
        ...


LaunchCause: TypeAlias = Literal["", "no-descriptor"]
"""Why a node was not started, where a finding says more of it: this process may open no more pipes.
"""


class CannotLaunch(Exception):
    """A job cannot be reached.

    Attributes:
        fix: A command that helps, or an empty string.
        cause: Why, as a value.
    """

    def __init__(self, sentence: str, fix: str = "", cause: LaunchCause = "") -> None:
        super().__init__(sentence)
        self.fix = fix
        self.cause: LaunchCause = cause


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """How agents are started."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the processes to observe; see `mpwatch.nodes.agent.jobs_of_node.Selection`."""
    program: str = ""
    """The command of mpwatch on the nodes, for a shell: `python3 /shared/mpwatch.pyz`. If empty,
    this Python where it has mpwatch on the node, else `mpwatch` from PATH; from a single file, this
    file where it can be read there, by this Python or else by `python3` from PATH."""

    @property
    def check(self) -> str:
        """A command on a node that shows whether mpwatch runs there."""
        return f"{self.program or 'mpwatch'} --version"

    def arguments(self, *more: str) -> list[str]:
        """The arguments of the agent."""
        matches = [f"--match={name}={value}" for name, value in self.environment.items()]
        return ["node", "--stdio", *matches, *more]

    def relay(self, spec: str) -> str:
        """The command, for the login shell of another machine, of a relay to the nodes of SPEC."""
        program = ["--agent", self.program] if self.program else []
        return self.shell_line("--relay", spec, *program)

    def here(self, *more: str) -> tuple[str, ...]:
        """The command on this machine."""
        return (*own_program(), *self.arguments(*more))

    def shell_line(self, *more: str) -> str:
        """The command for the login shell of another machine, whichever shell that is."""
        arguments = shlex.join(self.arguments(*more))
        python = shlex.quote(sys.executable)
        if self.program:
            script = f"exec {self.program} {arguments}"
        elif is_archive():
            file = shlex.quote(own_program()[-1])
            script = (
                f"if [ -r {file} ]; then "
                f"if [ -x {python} ]; then exec {python} {file} {arguments}; fi; "
                f"exec python3 {file} {arguments}; fi; exec mpwatch {arguments}"
            )
        else:
            # That the interpreter is there does not say that mpwatch is, nor that it runs there.
            script = (
                f"if {python} -c {shlex.quote(_HAS_MPWATCH)} < /dev/null > /dev/null 2>&1; "
                f"then exec {python} -m mpwatch {arguments}; fi; exec mpwatch {arguments}"
            )
        return f"exec sh -c {shlex.quote(script)}"


def not_started(command: Sequence[str], error: OSError) -> str:
    """Why a command of an engine cannot be started, in one sentence."""
    return f"{command[0]} cannot be started: {error.strerror}."


def own_program() -> tuple[str, ...]:
    """The command that started this mpwatch."""
    if is_archive():
        return (sys.executable, os.path.abspath(sys.argv[0]))
    return (sys.executable, "-m", "mpwatch")


def is_archive() -> bool:
    """Whether this mpwatch runs from a single file."""
    return sys.argv[0].endswith(".pyz") and os.path.isfile(sys.argv[0])


def engine(name: str, install: str) -> str:
    """The path of a program of an engine.

    Args:
        name: The program.
        install: The command that installs it.

    Raises:
        CannotLaunch: It is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise CannotLaunch(f"{name} is not installed on this machine.", install)
    return path


def lines_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """The lines that a command of an engine prints, sanitized.

    Args:
        command: The command.
        environment: Its variables, if they are not those of this process.

    Raises:
        CannotLaunch: It fails, or does not end in `QUERY_S`.
    """
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise CannotLaunch(
            f"{name} did not answer within {QUERY_S:.0f} s.", shlex.join(command)
        ) from None
    except OSError as error:
        raise CannotLaunch(not_started(command, error)) from None
    if done.returncode != 0:
        told = _told(done.stderr) or f"it ended with status {done.returncode}"
        raise CannotLaunch(f"{name} failed: {told}", shlex.join(command))
    output = done.stdout[:OUTPUT_BYTES_LIMIT]
    return [clean(line) for line in output.split(b"\n") if line.strip()]


_LOG_LINE = re.compile(rb"[IWEF][0-9]{4} [0-9:.]+ ")
"""How a line of kubectl's log begins, which it prints first (1.32): `E1128 01:36:08.6`."""


def _told(errors: bytes) -> str:
    """What an engine has said about its failure, without its log if there is more."""
    lines = errors.strip().splitlines()
    said = [line for line in lines if not _LOG_LINE.match(line)] or lines
    return clean(b"\n".join(said))
