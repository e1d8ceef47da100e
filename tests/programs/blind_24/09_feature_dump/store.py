"""One compressed file per clip; the second stage picks clips at random."""
import io
import os
import zlib

import torch


class ClipStore:
    def __init__(self, folder, level=1):
        self.folder, self.level = folder, level
        os.makedirs(folder, exist_ok=True)

    def _path(self, clip_id):
        return os.path.join(self.folder, f"{clip_id:06d}.ptz")

    def put(self, clip_id, features, meta):
        buf = io.BytesIO()
        torch.save({"features": features, "meta": meta}, buf)
        blob = zlib.compress(buf.getbuffer(), self.level)
        with open(self._path(clip_id), "wb") as f:
            f.write(blob)

    def get(self, clip_id):
        with open(self._path(clip_id), "rb") as f:
            return torch.load(io.BytesIO(zlib.decompress(f.read())))
