"""Whether a process of a job is confined more tightly than the job's root process.

A process that runs untrusted code (a judge, a sandboxed tool) has a system-call filter, another
user, namespaces or a security label of its own. The hook opens files, maps memory and creates a
socket: a filter may kill the process for this (SECCOMP_RET_KILL_PROCESS of seccomp(2)), and nothing
outside the sandbox should depend on a process in it. Such a process is excluded. The confinement of
the root process itself, for example by a container, is only the basis of comparison.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from mpwatch.model.sanitize import clean

_SEPARATING = ("user", "pid", "mnt")
"""Namespaces that a sandbox creates. Not net: the hook's socket is a file. Not ipc, uts and cgroup:
nothing of the hook depends on them. The time namespace is compared with that of mpwatch, see
`methods.require_same_clocks`."""

_WITH_FILTERS = 2
_CAP_SYS_ADMIN = 1 << 21
_FILTERED = "it is sandboxed: a system-call filter (seccomp) that the root process does not have"
_MAYBE_FILTERED = (
    "it has system-call filters (seccomp), and this kernel does not say whether it has more of them"
    " than the root process (Linux 5.9 and later do)"
)


@dataclass(frozen=True, slots=True)
class Confinement:
    """The restrictions of a process; empty where they could not be read."""

    seccomp_mode: int
    """0 off, 1 strict, 2 filters: see proc(5), `Seccomp`."""
    filters: int | None
    """How many filters it has; `None` before Linux 5.9."""
    may_add_filters: bool
    """Whether it had the right to add one: seccomp(2) takes `no_new_privs`, or CAP_SYS_ADMIN in the
    user namespace."""
    uids: tuple[int, ...]
    """Real, effective and saved user id."""
    namespaces: tuple[str, ...]
    """Identities of the namespaces in `_SEPARATING`."""
    label: str
    """Label of the security module (SELinux, AppArmor, Smack)."""


def read(pid: int, proc: str = "/proc") -> Confinement:
    """Read the restrictions of a process.

    Raises:
        OSError: The process has exited, or is hidden from this one.
    """
    fields = {}
    with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields[name] = value.split()
    return Confinement(
        seccomp_mode=_first(fields.get("Seccomp")),
        filters=_count(fields.get("Seccomp_filters")),
        may_add_filters=_may_add_filters(fields),
        uids=tuple(map(int, fields["Uid"][:3])),
        namespaces=tuple(_link(f"{proc}/{pid}/ns/{name}") for name in _SEPARATING),
        label=_label(pid, proc),
    )


def why_left_out(process: Confinement, root: Confinement) -> str | None:
    """Why a process is excluded, compared with the root process; `None` if it is not."""
    if process.seccomp_mode not in (0, root.seccomp_mode):
        return _FILTERED
    if process.filters is not None and root.filters is not None:
        if process.filters > root.filters:
            return _FILTERED
    elif process.seccomp_mode == _WITH_FILTERS and _may_have_more_filters(process, root):
        return _MAYBE_FILTERED
    if process.uids != root.uids:
        shown = "/".join(map(str, dict.fromkeys(process.uids)))
        return f"it runs as another user (uid {shown}) than the root process (uid {root.uids[0]})"
    for name, own, its in zip(_SEPARATING, process.namespaces, root.namespaces, strict=True):
        if own and its and own != its:
            return f"it lives in another {name} namespace than the root process"
    if process.label and root.label and process.label != root.label:
        return f"it has another security label than the root process ({clean(process.label)})"
    return None


def _may_have_more_filters(process: Confinement, root: Confinement) -> bool:
    """Whether a process may have filters that the root process does not have, if none are counted.

    It has not if it never had the right to add one. In a user namespace of its own it would have
    had all rights.
    """
    own, its = process.namespaces[0], root.namespaces[0]
    return process.may_add_filters or not own or own != its


def _may_add_filters(fields: dict[str, list[str]]) -> bool:
    """Whether a process has `no_new_privs`, or may ever get CAP_SYS_ADMIN (capabilities(7))."""
    try:
        bounding = int(fields["CapBnd"][0], 16)
        return fields["NoNewPrivs"][0] != "0" or bool(bounding & _CAP_SYS_ADMIN)
    except (KeyError, IndexError, ValueError):
        return True


def _count(values: list[str] | None) -> int | None:
    return int(values[0]) if values else None


def _first(values: list[str] | None) -> int:
    return int(values[0]) if values else 0


def _link(path: str) -> str:
    """Target of a link; empty if it is hidden or the kernel has no such namespace."""
    try:
        return os.readlink(path)
    except (PermissionError, FileNotFoundError):
        return ""


def _label(pid: int, proc: str) -> str:
    """The security label of a process; empty without a security module."""
    try:
        with open(f"{proc}/{pid}/attr/current", "rb") as file:
            return file.read(4096).rstrip(b"\0\n").decode("utf-8", "replace")
    except OSError:  # EINVAL where no security module has labels
        return ""
