"""A job in which each text that other processes can read is hostile to terminals and documents.

It prints the pids of itself and its child. After a line of input it lets a thread and another child
end with hostile exceptions, prints `ended`, and runs on. Markers (`mComm`, `mArgument`, ...)
identify the texts.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from types import FunctionType
from typing import Any

HOSTILE = (
    "\x1b[66;66H\x1b[2J\x1b]52;c;bVN0b2xlbg==\x07\x1b]0;mTitle\x1b\\\x9b77;77H\x9d52;c;bVN0b2xlbg==\x9c"
    "\u202e\u2066\u200b\u200d\ufeff\u2028[bold red]x[/] [link=http://x]</script><script>mScript()</script>"
    '<img src=x onerror=mScript()>"\'\\"} 1\r\nmpwatch_forged 1\n\x00\x08\x7f%s{}\udcff'
)
"""Cursor, clipboard, title (7 and 8 bits), direction, zero width, markup, HTML, labels, lines."""
MEGABYTES = HOSTILE + "x" * 3_000_000


def in_name(marker: str) -> str:
    """What fits into a file name."""
    return (marker + HOSTILE).replace("\0", "").replace("/", "")[:100]


def renamed(function: Any, name: str, file: str) -> FunctionType:
    """A function that stacks show under another name and file."""
    code = function.__code__.replace(co_name=name, co_filename=file)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    return FunctionType(code, globals(), name)


def rest() -> None:
    while True:
        time.sleep(0.05)


def fail() -> None:
    # A name of a type is UTF-8 without a zero.
    name = "mError" + HOSTILE.replace("\0", "").replace("\udcff", "")
    raise type(name, (RuntimeError,), {})("mMessage" + MEGABYTES)


def write_to(path: str, name: bytes) -> None:
    with open(path, "wb") as file:
        file.write(name)


def main() -> None:
    write_to("/proc/self/comm", b"mComm\x1b[66H\n\xff")
    here = os.path.join(sys.argv[1], in_name("mFolder"))
    os.makedirs(here)
    segment = f"/dev/shm/torch_{os.getpid()}_1_{in_name('mSegment')}"
    with open(segment, "wb+") as shared:
        os.unlink(segment)  # its descriptor keeps it open
        os.truncate(shared.fileno(), 4096)
        fork = multiprocessing.get_context("fork")
        resting = renamed(rest, "mFunction" + HOSTILE, os.path.join(here, "mFile.py"))
        child = fork.Process(target=resting, name="mChild" + HOSTILE, daemon=True)
        child.start()
        named = threading.Thread(target=resting, name="mThread" + HOSTILE, daemon=True)
        named.start()
        write_to(f"/proc/self/task/{named.native_id}/comm", b"mTh\x1b[66H\r\x9b")
        print(os.getpid(), child.pid, flush=True)

        sys.stdin.readline()
        failing = renamed(fail, "mFailing" + HOSTILE, os.path.join(here, "mFile.py"))
        thread = threading.Thread(target=failing, name="mDying" + HOSTILE)
        thread.start()
        thread.join()
        dying = fork.Process(target=failing, name="mDead" + HOSTILE)
        dying.start()
        dying.join()
        print("ended", flush=True)
        rest()


if __name__ == "__main__":
    if sys.argv[-1].startswith("mArgument"):
        main()
    else:  # arguments that no shell would pass on unchanged
        os.environ["RANK"] = "mRank" + HOSTILE.replace("\0", "")
        hostile = "mArgument" + HOSTILE.replace("\0", "")
        os.execv(sys.executable, [sys.executable, *sys.argv, hostile])
