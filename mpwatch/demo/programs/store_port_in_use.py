"""Start a job on a port where another one still listens.

The first rank of an earlier job is still running. It holds the store's port, and the error of the
new job does not say which process that is.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from mpwatch.demo.bounds import begin, mended

STARTER = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def earlier_job(note):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    note.with_suffix(".new").write_text(str(store.port))
    note.with_suffix(".new").rename(note)
    time.sleep(1000)


def this_job(until_s):
    ready = False
    while time.monotonic() < until_s:
        try:
            port = int(os.environ["MASTER_PORT"])
            dist.TCPStore(os.environ["MASTER_ADDR"], port, 1, True, timedelta(seconds=5))
        except RuntimeError as error:
            print(f"cannot start: {str(error).splitlines()[0]}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def run_as(part, **settings):
    """The command line and the environment of this program in one of its parts."""
    return [sys.executable, __file__], {**os.environ, "PART": part, **settings}


def main():
    part = os.environ.get("PART")
    if part == "earlier job":
        earlier_job(Path(os.environ["NOTE"]))
    elif part == "this job":
        this_job(float(os.environ["UNTIL"]))
    else:
        until_s = time.monotonic() + begin(__doc__)
        note = Path(tempfile.gettempdir(), "port")
        command, settings = run_as("earlier job", NOTE=str(note))
        subprocess.run([sys.executable, "-c", STARTER, *command], env=settings, check=True)
        while not note.exists() and time.monotonic() < until_s:
            time.sleep(0.1)
        port = free_port() if mended() else note.read_text()
        command, settings = run_as(
            "this job", UNTIL=str(until_s), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
        )
        os.execve(command[0], command, settings)


if __name__ == "__main__":
    main()
