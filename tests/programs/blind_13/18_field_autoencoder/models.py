import torch.nn as nn


class Autoencoder(nn.Module):
    def __init__(self, size, latent):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(size, 128), nn.GELU(), nn.Linear(128, latent))
        self.dec = nn.Sequential(nn.Linear(latent, 128), nn.GELU(), nn.Linear(128, size))

    def encode(self, x):
        return self.enc(x)

    def forward(self, x):
        return self.dec(self.enc(x))


class Processor(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 64), nn.GELU(), nn.Linear(64, latent))

    def forward(self, z):
        return z + self.net(z)
