"""A file that is only appended to, whole members or nothing, whatever the disk does."""

from __future__ import annotations

import os
from collections import deque

WAITING_BYTES_LIMIT = 16 << 20
"""Members kept while the disk is full; a longer shortage costs readings, not memory."""


class CannotRecord(OSError):
    """A recording cannot be begun there; the text is one sentence for a person."""


class MemberFile:
    """Appends members in order; those that cannot be written wait, up to a limit."""

    def __init__(self, path: str) -> None:
        """Create the file, never opening an existing one.

        It is readable by its owner only, because command lines may hold secrets; and an earlier
        recording may be all that is left of a job.

        Raises:
            CannotRecord: It exists already, or cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd: int | None = os.open(path, flags, 0o600)
        except FileExistsError:
            raise CannotRecord(
                f"{path} exists already; choose another name or remove it."
            ) from None
        except OSError as error:
            raise CannotRecord(f"{path} cannot be written: {error.strerror}.") from None
        self._path = path
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._good_end = 0

    @property
    def is_open(self) -> bool:
        """Whether members can still be taken."""
        return self._fd is not None

    @property
    def is_full(self) -> bool:
        """Whether so much waits already that nothing more should be handed in."""
        return self._waiting_bytes >= WAITING_BYTES_LIMIT

    @property
    def waiting(self) -> int:
        """Inputs in the members handed in and not written."""
        return sum(inputs for _, inputs in self._waiting)

    def append(self, member: bytes = b"", inputs: int = 0) -> str | None:
        """Write what waits, and one more member if one is given.

        Args:
            member: A complete member.
            inputs: How many inputs it holds.

        Returns:
            `None` if everything is in the file, else why not.
        """
        if member:
            self._waiting.append((member, inputs))
            self._waiting_bytes += len(member)
        while self._waiting and self._fd is not None:
            problem = self._write(self._fd, self._waiting[0][0])
            if problem is not None:
                return problem
            self._waiting_bytes -= len(self._waiting.popleft()[0])
        return None

    def close(self) -> None:
        """Close the file; what still waits is lost."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, member: bytes) -> str | None:
        """Write a member whole or not at all: half of one would hide those after it."""
        try:
            written = 0
            while written < len(member):
                written += os.write(fd, memoryview(member)[written:])
        except OSError as error:
            return self._take_back(fd) or error.strerror or "it cannot be written"
        self._good_end += len(member)
        return None

    def _take_back(self, fd: int) -> str | None:
        """Cut off half a member; where that fails nothing may be appended behind it."""
        try:
            os.ftruncate(fd, self._good_end)
            os.lseek(fd, self._good_end, os.SEEK_SET)
        except OSError as error:
            self.close()
            return f"{error.strerror}; the file was given up"
        return None
