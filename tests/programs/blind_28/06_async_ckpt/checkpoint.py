import io
import logging
import os
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

log = logging.getLogger("checkpoint")

_WRITER = None


class Writer:
    """Handle of the daemon process which does the file output of this rank."""

    def __init__(self, root, port):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ckpt_daemon.py")
        self.proc = subprocess.Popen(
            [sys.executable, script, "--rank", str(dist.get_rank()), "--world-size", str(dist.get_world_size()),
             "--port", str(port), "--root", root],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        if self.proc.stdout.read(1) != b"R":
            raise RuntimeError("checkpoint writer did not start")

    def write(self, name, payload):
        self.proc.stdin.write(struct.pack("<IQ", len(name), len(payload)) + name.encode())
        self.proc.stdin.write(payload)
        self.proc.stdin.flush()


class AsyncCheckpointer:
    def __init__(self, root):
        self.root = root
        self.group = dist.new_group(backend="gloo")
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ckpt")
        self.pending = []

    def _agree_on_port(self):
        """Rank 0 offers a port, every rank tells that it takes part."""
        offer = None
        if dist.get_rank() == 0:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                offer = s.getsockname()[1]
        offers = [None] * dist.get_world_size()
        dist.all_gather_object(offers, offer, group=self.group)
        return offers[0]

    def _execute(self, name, payload, port):
        global _WRITER
        if _WRITER is None:
            _WRITER = Writer(self.root, port)
        _WRITER.write(name, payload)

    def save(self, name, state):
        stream = io.BytesIO()
        torch.save(state, stream)
        port = None
        if _WRITER is None:
            port = self._agree_on_port()
        self.pending.append(self.executor.submit(self._execute, name, stream.getvalue(), port))

    def check(self):
        self.pending = [f for f in self.pending if not (f.done() and f.result() is None)]
