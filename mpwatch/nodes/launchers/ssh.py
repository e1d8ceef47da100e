"""`ssh:HOST,HOST` or `ssh:@HOSTFILE`: the user's own OpenSSH client, one process for each host."""

from __future__ import annotations

import re
import shlex

from mpwatch.nodes.launchers.launch import AgentCommand, CannotLaunch, Launch, engine

CONNECT_S = 10
"""ssh gives up on a host after so long: connecting, its greeting and the exchange of keys
(ConnectTimeout in ssh_config(5), OpenSSH 9.2)."""
ALIVE_S = 15
"""Interval of the questions whether the host is still there; after eight without an answer ssh
ends."""
HOSTFILE_BYTES_LIMIT = 1 << 20
_REFUSED = re.compile(
    r"(?:kex_exchange_identification: (?:read: )?)?Connection (?:closed|reset) by .*"
)
"""Each line that ssh prints where the server, or that of a jump host, has ended the connection
before the exchange of keys, as sshd does at random while many are not authenticated yet
(MaxStartups in sshd_config(5), OpenSSH 9.2). Where more is printed, there is another reason."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,252}")


def launches(rest: str, agent: AgentCommand) -> list[Launch]:
    """One ssh for each host; `rest` is what follows `ssh:`.

    Raises:
        CannotLaunch: ssh is not installed, or a host is no host.
    """
    hosts = _hosts_of_file(rest[1:]) if rest.startswith("@") else rest.split(",")
    hosts = [host for host in dict.fromkeys(map(str.strip, hosts)) if host]
    if not hosts:
        raise CannotLaunch(f"ssh:{rest} names no host.", "mpwatch dump --job ssh:HOST,HOST")
    # A name that begins with a dash would be an option of ssh.
    wrong = next((host for host in hosts if not _HOST.fullmatch(host)), None)
    if wrong is not None:
        raise CannotLaunch(f"{wrong!r} is not a host.", "mpwatch dump --job ssh:HOST,HOST")
    program = engine("ssh", "apt-get install openssh-client")
    options = [
        "-T",
        "-oBatchMode=yes",
        f"-oConnectTimeout={CONNECT_S}",
        f"-oServerAliveInterval={ALIVE_S}",
        "-oServerAliveCountMax=8",
    ]
    return [
        Launch(
            host,
            (program, *options, "--", host, agent.shell_line()),
            f"ssh {host} {shlex.quote(agent.check)}",
            is_refused=_is_refused,
        )
        for host in hosts
    ]


def _is_refused(told: str) -> bool:
    """Whether the connection was refused for the moment only."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return bool(lines) and all(_REFUSED.fullmatch(line) for line in lines)


def _hosts_of_file(path: str) -> list[str]:
    """The first word of each line; `#` begins a comment, as in hostfiles of MPI and DeepSpeed."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(HOSTFILE_BYTES_LIMIT)
    except OSError as error:
        raise CannotLaunch(
            f"The hostfile {path} cannot be read: {error.strerror}.", f"ls -l {path}"
        ) from None
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if words]
