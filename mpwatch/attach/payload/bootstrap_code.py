"""The text that a target runs first: it opens its exchange directory safely and runs the payload.

The text names the directory that the observer made, and the process that it was made for; nothing
is found by convention or in the environment. However the path was resolved, the
directory is accepted only if it belongs to the user of the process and is closed to others,
and the payload only if it is a regular file of that user, opened within that directory without
following links. Both are checked on open descriptors, so names cannot be swapped between check and
use. Other users than root can therefore not supply any part of the code.

It runs on a thread of its own (`native_call`), or on the main thread by `sys.remote_exec`, in a
namespace of its own.
"""

from __future__ import annotations

PAYLOAD_NAME = "payload"
SCRIPT_NAME = "bootstrap.py"
MAX_PAYLOAD_BYTES = 4 << 20

_TEXT = """\
import marshal,posix as p
n=p.O_NOFOLLOW|p.O_CLOEXEC|p.O_NONBLOCK
d=p.open(%(path)a,n|p.O_DIRECTORY)
try:
 u=p.getuid();s=p.fstat(d)
 if (p.getpid(),s.st_uid,s.st_mode&63)!=(%(pid)d,u,0):raise OSError(1)
 f=p.open("payload",n,dir_fd=d)
 try:
  s=p.fstat(f);b=b""
  if (s.st_uid,s.st_mode&0o170077)!=(u,0o100000) or s.st_size>%(most)d:raise OSError(1)
  while c:=p.read(f,s.st_size):b+=c
 finally:p.close(f)
 b=marshal.loads(b);t=b["text"]
 import sys
 if b["magic"]==sys.modules["_frozen_importlib_external"].MAGIC_NUMBER:t=marshal.loads(b["code"])
 exec(t,{"__name__":"mpwatch_payload","folder":d,"contents":b})
finally:p.close(d)
"""


def text(directory: str, pid: int) -> bytes:
    """The bootstrap code for one process.

    Args:
        directory: Its exchange directory, as the target names it.
        pid: The process id, as the target sees it: a forked child that inherits a queued call runs
            the same text and must not use its parent's directory.
    """
    filled = _TEXT % {"path": directory, "pid": pid, "most": MAX_PAYLOAD_BYTES}
    return filled.encode("ascii")


def script(directory: str, pid: int) -> bytes:
    """The same as a file for `sys.remote_exec`, which runs it on the main thread.

    It only starts a thread for the rest, and adds no name to `__main__`.
    """
    inner = f"try:exec({text(directory, pid).decode()!r},{{}})\nexcept BaseException:pass"
    return f"__import__('_thread').start_new_thread(exec,({inner!r},{{}}))\n".encode()
