"""What the doctor says about rights: tracing, and the directory of the hooks."""

from __future__ import annotations

import os
import stat

from mpwatch.collect.rights import Facts, judge, judge_in_general, read_facts
from mpwatch.hook import wire
from mpwatch.model.checks import Check


def tracing(pid: int | None, proc: str = "/proc") -> Check:
    """Whether stacks can be taken and the hook brought in from outside.

    Args:
        pid: The process asked about; `None` for processes of this user in general.
        proc: Where procfs is.
    """
    facts = read_facts(os.getpid() if pid is None else pid, proc)
    return tracing_check(facts, is_general=pid is None)


def tracing_check(facts: Facts, *, is_general: bool) -> Check:
    """The line about tracing, from what was read."""
    rights = judge_in_general(facts) if is_general else judge(facts)
    value = ", ".join(rights.facts[1:-1] if is_general else rights.facts)
    if rights.is_allowed:
        whose = "Processes of this user" if is_general else "This process"
        return Check("tracing rights", "ok", value, f"{whose} can be traced: stacks, attach.")
    reason = f"{rights.reason[:1].upper()}{rights.reason[1:]}."
    meaning = f"{reason} Everything from /proc is shown all the same."
    return Check("tracing rights", "warning", value, meaning, rights.fix)


def hook_folder(
    uid: int, xdg_runtime_dir: str | None, root: str = "", uid_inside: int | None = None
) -> Check:
    """Whether a hook finds a directory for its socket and its ring.

    Args:
        uid: Owner of the process that would carry the hook.
        xdg_runtime_dir: As its environment says.
        root: Prefix that leads to its own root directory.
        uid_inside: What the owner calls itself, where it is in another user namespace.
    """
    reasons = []
    candidates = wire.runtime_candidates(uid if uid_inside is None else uid_inside, xdg_runtime_dir)
    for folder in candidates:
        reason = _refused(root + folder, uid)
        if reason is None:
            meaning = "Hooks put their sockets and rings there."
            return Check("hook directory", "ok", folder, meaning)
        reasons.append(f"{folder} {reason}")
    meaning = "The hook works without its ring file but nothing can connect to it."
    fix = f"remove or repair {candidates[-1]}"
    return Check("hook directory", "warning", "; ".join(reasons), meaning, fix)


def _refused(path: str, uid: int) -> str | None:
    """Why a hook of this user could not use a directory; the same rules as the hook's own."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None if _can_be_made(os.path.dirname(path), uid) else "cannot be made"
    except OSError as error:
        return error.strerror or "cannot be examined"
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a directory"
    return None if found.st_uid == uid else f"belongs to uid {found.st_uid}"


def _can_be_made(parent: str, uid: int) -> bool:
    try:
        found = os.stat(parent)
    except OSError:
        return False
    own = found.st_uid == uid and bool(found.st_mode & stat.S_IWUSR)
    return uid == 0 or own or bool(found.st_mode & stat.S_IWOTH)
