"""User ids across user namespaces."""

from __future__ import annotations


def uid_inside(uid: int, pid: int, proc: str = "/proc") -> int:
    """What a process calls a user id, in its own user namespace; the same where that has no name.

    Lines of `uid_map` are the first id inside, the first outside as the reader counts, and how many
    (user_namespaces(7)).

    Raises:
        OSError: The process is gone.
        ValueError: The file is not as documented.
    """
    with open(f"{proc}/{pid}/uid_map", encoding="utf-8") as file:
        for line in file:
            inside, outside, count = map(int, line.split())
            if outside <= uid < outside + count:
                return inside + uid - outside
    return uid
