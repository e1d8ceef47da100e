"""Start a tool for every batch and never wait for it.

A process that has exited stays in the process table until its parent waits for it. Here such
zombies accumulate.
"""

import subprocess
import time

import torch

from mpwatch.demo.bounds import begin, mended

MOST = 200


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    tools: list[subprocess.Popen[bytes]] = []
    weights = torch.zeros(1000)
    while time.monotonic() < until_s:
        weights += 1
        if len(tools) < MOST:
            tools.append(subprocess.Popen(["true"]))
            if mended():
                tools[-1].wait()
        if len(tools) == 10:
            print("ready", flush=True)
        time.sleep(0.4)


if __name__ == "__main__":
    main()
