import logging
import os
import subprocess
import sys

log = logging.getLogger("recorder")
HERE = os.path.dirname(os.path.abspath(__file__))


class VideoWriter:
    def __init__(self, path, size, fps):
        w, h = size
        self.frames = 0
        self.proc = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "framepack.py"),
             "-s", f"{w}x{h}", "-r", str(fps), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def write(self, frame):
        try:
            self.proc.stdin.write(frame.tobytes())
        except BrokenPipeError:
            raise RuntimeError(self.proc.stderr.read().decode())
        self.frames += 1

    def close(self):
        self.proc.stdin.close()
        code = self.proc.wait()
        if code:
            raise RuntimeError(self.proc.stderr.read().decode())


def recorder_main(frames, path, size, fps):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s recorder %(message)s", force=True)
    writer = VideoWriter(path, size, fps)
    while True:
        frame = frames.get()
        if frame is None:
            break
        writer.write(frame)
        if writer.frames % 60 == 0:
            log.info("%d frames written", writer.frames)
    writer.close()
    log.info("video closed after %d frames", writer.frames)
