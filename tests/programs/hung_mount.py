"""A job with its files on a FUSE server that stops answering: `hung_mount.py FOLDER`, as root.

FOLDER is made, and mounted in it is `mount`. The job works in FOLDER, has a file of the server open
and `mount` as TMPDIR, and holds a lock on a local file. SIGUSR1 stops the server. The mount is in a
mount namespace of the program, and ends with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import sys
import time

IN = struct.Struct("=IIQQIIII")
OUT = struct.Struct("=IiQ")
LOOKUP, GETATTR, OPEN, STATFS, RELEASE, INIT, OPENDIR, RELEASEDIR = 1, 3, 14, 17, 18, 26, 27, 29
FORGET, BATCH_FORGET = 2, 42
ROOT, FILE = 1, 2
CLONE_NEWNS = 0x20000
PRIVATE = 1 << 14 | 1 << 18
"""MS_REC and MS_PRIVATE."""


def attributes(node: int) -> bytes:
    """`struct fuse_attr`."""
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
    return struct.pack("=6Q10I", node, 0, 0, *([int(time.time())] * 3), 0, 0, 0, mode, 1, *[0] * 5)


def reply(opcode: int, node: int, name: bytes) -> bytes | int:
    """The body of an answer, or an error number."""
    if opcode == INIT:
        return struct.pack("=IIIIHHIIHHI28x", 7, 31, 65536, 0, 8, 8, 65536, 1, 0, 0, 0)
    if opcode == GETATTR:
        return struct.pack("=QII", 0, 0, 0) + attributes(node)
    if opcode == LOOKUP:
        if name != b"data":
            return errno.ENOENT
        return struct.pack("=4QII", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("=QII", 1, 0, 0)
    if opcode == STATFS:
        return struct.pack("=5Q4I24x", 100, 50, 50, 100, 50, 4096, 255, 4096, 0)
    return b"" if opcode in (RELEASE, RELEASEDIR) else errno.ENOSYS


def serve(device: int, stop: int) -> None:
    """Answer until something can be read from `stop`, then never again."""
    os.set_blocking(device, False)
    os.set_blocking(stop, False)
    while True:
        try:
            if os.read(stop, 1):
                break
        except BlockingIOError:
            pass
        try:
            request = os.read(device, 1 << 17)
        except BlockingIOError:
            time.sleep(0.005)
            continue
        _, opcode, unique, node, *_ = IN.unpack_from(request)
        if opcode in (FORGET, BATCH_FORGET):
            continue
        body = reply(opcode, node, request[IN.size :].rstrip(b"\0"))
        error, data = (0, body) if isinstance(body, bytes) else (-body, b"")
        os.write(device, OUT.pack(OUT.size + len(data), error, unique) + data)
    print("stopped", flush=True)
    time.sleep(600)


def main() -> None:
    folder = sys.argv[1]
    place = os.path.join(folder, "mount")
    os.makedirs(place)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if libc.mount(b"hung", place.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    end, stop = os.pipe()
    if not os.fork():
        os.close(stop)
        serve(device, end)
    os.close(device)
    file = os.open(os.path.join(place, "data"), os.O_RDONLY)
    os.set_inheritable(file, True)
    job = os.fork()
    if not job:
        os.close(stop)
        os.chdir(folder)
        os.execve(
            sys.executable,
            [sys.executable, "-c", "import fcntl, time; lock = open('lock', 'w');"
             " fcntl.flock(lock, fcntl.LOCK_EX); print('ready', flush=True); time.sleep(600)"],
            {**os.environ, "TMPDIR": place},
        )  # fmt: skip
    os.close(file)
    print("job", job, flush=True)
    signal.sigwait([signal.SIGUSR1])
    os.write(stop, b".")
    time.sleep(600)


if __name__ == "__main__":
    main()
