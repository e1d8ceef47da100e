"""Its main thread does nothing but copy, in calls that never wait and take 10 ms or more each.

Whatever arrives on standard input is answered with how many calls returned with less than they
were given, and how many there were; then it computes.

usage: attach_copying.py sendfile|copy_file_range|getrandom|read
"""

import os
import sys
import tempfile

SIZE = 1 << 26
RANDOM_SIZE = (1 << 25) - 1  # the most that one call gives (Linux 5.18)

source = tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115
source.truncate(SIZE)
sink = tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115
zero = os.open("/dev/zero", os.O_RDONLY)


def sendfile():
    os.lseek(sink.fileno(), 0, os.SEEK_SET)
    return SIZE - os.sendfile(sink.fileno(), source.fileno(), 0, SIZE)


def copy_file_range():
    return SIZE - os.copy_file_range(source.fileno(), sink.fileno(), SIZE, 0, 0)


def getrandom():
    return RANDOM_SIZE - len(os.getrandom(RANDOM_SIZE))


def read():
    return SIZE - os.readv(zero, [buffer])


copy = globals()[sys.argv[1]]
buffer = bytearray(SIZE)
short = count = 0
copy()
print("ready", flush=True)
os.set_blocking(0, False)
while True:
    short += copy() != 0
    count += 1
    try:
        if os.read(0, 64):
            break
    except BlockingIOError:
        pass
print(short, count, flush=True)
number = 0
while True:
    number += 1
