"""Work for the processes of a framework: some seconds of arithmetic with a known result."""

import time

SECONDS = 6.0


def work(number):
    end_s = time.monotonic() + SECONDS
    total = 0
    while time.monotonic() < end_s:
        total = sum(value * number for value in range(2000))
    return total
