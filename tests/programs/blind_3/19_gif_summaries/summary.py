import os
import tempfile
import threading
import zlib

import numpy as np


def make_video(frames, fps, tmpdir):
    path = tempfile.NamedTemporaryFile(suffix=".gif", dir=tmpdir, delete=False).name
    with open(path, "wb") as f:
        for frame in frames:
            f.write(zlib.compress(frame.tobytes(), 1))
    with open(path, "rb") as f:
        encoded = f.read()
    return {"fps": fps, "height": frames.shape[1], "data": encoded}


class SummaryWriter:
    def __init__(self, folder):
        self.folder = folder
        self.tmpdir = os.path.join(folder, "tmp")
        os.makedirs(self.tmpdir, exist_ok=True)
        self.events = open(os.path.join(folder, "events"), "wb")
        self.lock = threading.Lock()

    def add_video(self, tag, frames, step, fps=4):
        video = make_video(frames, fps, self.tmpdir)
        with self.lock:
            self.events.write(f"{tag} {step} {len(video['data'])}\n".encode())
            self.events.flush()
