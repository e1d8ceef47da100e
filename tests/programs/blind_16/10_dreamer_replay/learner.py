import numpy as np


class Learner:
    """A linear world model on downsampled images."""

    def __init__(self, batch_size, size=192, seed=0):
        rng = np.random.default_rng(seed)
        self.enc = (rng.standard_normal((size, 32)) * 0.05).astype(np.float32)
        self.dec = (rng.standard_normal((32, size)) * 0.05).astype(np.float32)
        self.loss = float("nan")

    def update(self, batch, lr=1e-3):
        image = batch["image"][:, :, ::8, ::8].astype(np.float32) / 255 - 0.5
        x = image.reshape(-1, image.shape[2] * image.shape[3] * 3)
        z = x @ self.enc
        error = z @ self.dec - x
        self.loss = float((error ** 2).mean())
        scale = lr / len(x)
        self.dec -= scale * (z.T @ error)
        self.enc -= scale * (x.T @ (error @ self.dec.T))
