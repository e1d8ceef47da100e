import subprocess
import sys
from pathlib import Path


class EpisodeRecorder:
    def __init__(self, width, height):
        script = Path(__file__).with_name("encoder.py")
        self.proc = subprocess.Popen(
            [sys.executable, str(script), str(width), str(height)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.frames = 0

    def write(self, frame):
        self.proc.stdin.write(frame.tobytes())
        self.proc.stdin.flush()
        self.frames += 1

    def close(self):
        self.proc.stdin.close()
        summary = self.proc.stdout.read().decode().strip()
        errors = self.proc.stderr.read().decode()
        if self.proc.wait() != 0:
            raise RuntimeError(errors)
        return summary
