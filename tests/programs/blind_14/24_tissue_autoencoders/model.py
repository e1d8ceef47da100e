import torch
from torch import nn


def fc(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out, momentum=0.01, eps=0.001), nn.ReLU(),
                         nn.Dropout(0.1))


class VAE(nn.Module):
    def __init__(self, genes, hidden=128, latent=10):
        super().__init__()
        self.encoder = fc(genes, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.decoder = fc(latent, hidden)
        self.scale = nn.Sequential(nn.Linear(hidden, genes), nn.Softmax(-1))

    def loss(self, x):
        library = x.sum(1, keepdim=True).clamp(min=1)
        q = self.encoder(torch.log1p(x))
        mu, logvar = self.mean(q), self.logvar(q).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        rate = library * self.scale(self.decoder(z)) + 1e-8
        nll = (rate - x * rate.log()).sum(1)
        kl = 0.5 * (mu ** 2 + logvar.exp() - 1 - logvar).sum(1)
        return (nll + kl).mean()
