"""Client side of the embedding service: JSON lines over the child's stdin and stdout."""
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

log = logging.getLogger("services")
HERE = Path(__file__).resolve().parent
PASS_ENV = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR")


class EmbeddingService:
    def __init__(self, index, codebook):
        self.index = index
        self.codebook = Path(codebook)
        self.proc = None

    def launch(self):
        env = {k: os.environ[k] for k in PASS_ENV if k in os.environ}
        env["OMP_NUM_THREADS"] = "1"
        cmd = [sys.executable, str(HERE / "embed_server.py"), "--codebook", str(self.codebook), "--index", str(self.index)]
        self.proc = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        log.info("started embedding service %d, pid %d", self.index, self.proc.pid)

    def wait_ready(self):
        for line in self.proc.stdout:
            if line.startswith("started"):
                return
        raise RuntimeError(f"embedding service {self.index} exited with {self.proc.wait()}")

    def embed(self, docs):
        self.proc.stdin.write(json.dumps({"docs": docs}) + "\n")
        self.proc.stdin.flush()
        reply = json.loads(self.proc.stdout.readline())
        return np.asarray(reply["vectors"], dtype=np.float32)

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(timeout=10)
