"""Runs one candidate program in a subprocess and returns its reward."""
import os
import resource
import signal
import subprocess
import sys
import tempfile


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (40, 40))


class Sandbox:
    def __init__(self, timeout):
        self.timeout = timeout
        self.folder = tempfile.mkdtemp(prefix="candidates_")

    def score(self, source, expected):
        path = os.path.join(self.folder, "candidate.py")
        with open(path, "w") as f:
            f.write(source)
        proc = subprocess.Popen([sys.executable, "-I", "-S", path], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                preexec_fn=limit_cpu)
        try:
            out, _ = proc.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            # candidates may have children of their own
            os.killpg(os.getpgid(proc.pid), signal.SIGKILL)
            proc.communicate()
            return -1.0
        if proc.returncode != 0:
            return -0.5
        return 1.0 if out.strip() == str(expected) else 0.0
