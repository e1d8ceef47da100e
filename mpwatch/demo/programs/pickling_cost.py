"""Send frames as lists of numbers through a queue.

Each number of a list is an object of its own: to pickle a frame, send it and build it anew in the
other process takes many times as long as to use it.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

HEIGHT, WIDTH = 240, 320


def acquire(frames):
    frame = torch.randint(255, (HEIGHT, WIDTH, 3), dtype=torch.uint8)
    pixels = frame.tolist()
    number = 0
    while True:
        if mended():
            frames.put((number, frame))
            time.sleep(0.02)
        else:
            pixels[number % HEIGHT][0][0] = number % 255
            frames.put((number, pixels))
        number += 1


def main():
    seconds = begin(__doc__)
    torch.set_num_threads(1)
    until_s = time.monotonic() + seconds
    frames = mp.Queue(2)
    mp.Process(target=acquire, args=(frames,), name="acquire", daemon=True).start()
    total = 0.0
    frames.get()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        number, pixels = frames.get()
        total += float(torch.as_tensor(pixels[number % HEIGHT]).float().mean())
    print(total)


if __name__ == "__main__":
    main()
