"""The text that is run in a target: constant, whatever the target and the errand are.

It finds the parcel meant for its process by a convention on names and executes the program in it,
as it was compiled for this Python (see `packing`) or else from its text.
It runs in the namespace of the target's `__main__` and leaves no name behind there.
"""

from __future__ import annotations

PARCEL_PREFIX = "attach-"
PROGRAM_NAME = "payload.py"
BUNDLE_NAME = "hook"

# Sockets, parcels and rings share a directory: see `wire.runtime_candidates` and `wire.stem`.
_FINDER = """\
import marshal, os, sys
with open("/proc/self/stat", "rb") as f: t = f.read().rpartition(b")")[2].split()[19].decode()
u = os.getuid()
for r in os.environ.get("XDG_RUNTIME_DIR", "") + "/mpwatch", "/tmp/mpwatch-%d" % u:
 d = r + "/attach-%d-%s" % (os.getpid(), t)
 p = d + "/payload.py"
 if os.path.isfile(p) and os.stat(p).st_uid in (0, u):
  try:
   with open(d + "/hook", "rb") as f:
    if f.read(4) != sys.modules["_frozen_importlib_external"].MAGIC_NUMBER: raise ValueError
    c = marshal.loads(f.read(int.from_bytes(f.read(4), "little")))
  except Exception:
   with open(p, "rb") as f: c = compile(f.read(), p, "exec")
  exec(c, {"__name__": "mpwatch_payload", "parcel": d})
  break
"""

TEXT = f"try: exec({_FINDER!r}, {{}})\nexcept BaseException: pass\n".encode() + b"\0"
"""Zero-terminated, as `PyRun_SimpleString` wants it."""

SCRIPT_NAME = "stub.py"
SCRIPT = TEXT.rstrip(b"\0")
"""The same as a file, as `sys.remote_exec` wants it."""
