"""Its main thread does nothing but write to a pipe that is read in small pieces.

Whatever arrives on standard input is answered with how many writes returned with less than they
were given, and how many there were.
"""

import os
import time

SIZE = 1 << 20
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    while os.read(reader, 1 << 15):
        time.sleep(0.0005)
    os._exit(0)
os.close(reader)
data = bytes(SIZE)
short = count = 0
print("ready", flush=True)
os.set_blocking(0, False)
while True:
    short += os.write(writer, data) != SIZE
    count += 1
    try:
        if os.read(0, 64):
            print(short, count, flush=True)
    except BlockingIOError:
        pass
