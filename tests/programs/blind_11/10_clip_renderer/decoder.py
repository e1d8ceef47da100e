"""Decodes latents to frames and streams them into the encoder."""
import logging
import os
import subprocess
import sys
import time

import numpy as np

log = logging.getLogger("render.decoder")
ENCODER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "encoder.py")


class VideoDecoder:
    def __init__(self, width, height, seed):
        self.width = width
        self.height = height
        rng = np.random.default_rng(seed)
        self.basis = rng.integers(0, 255, size=(4, height, width, 3)).astype(np.float32)

    def decode(self, latents):
        for latent in latents:
            weights = np.exp(latent - latent.max())
            weights /= weights.sum()
            time.sleep(0.012)
            yield np.tensordot(weights, self.basis, axes=1).astype(np.uint8)

    def decode_and_stream(self, latents, path, pix_fmt):
        command = [sys.executable, ENCODER, "--size", f"{self.width}x{self.height}", "--pix-fmt", pix_fmt, "-o", path]
        proc = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            for frame in self.decode(latents):
                proc.stdin.write(frame.tobytes())
        finally:
            proc.stdin.close()
            proc.wait()
        return proc.returncode
