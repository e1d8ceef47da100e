import torch
from torch import nn


def conv_block(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2))


class Protonet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(conv_block(1, width), conv_block(width, width), conv_block(width, width),
                                     nn.Flatten())

    def loss(self, support, query):
        n_way, n_query = query.shape[:2]
        z = self.encoder(torch.cat([support.flatten(0, 1), query.flatten(0, 1)]))
        proto = z[:support.shape[0] * support.shape[1]].view(n_way, -1, z.shape[1]).mean(1)
        dist = torch.cdist(z[support.shape[0] * support.shape[1]:], proto) ** 2
        target = torch.arange(n_way).repeat_interleave(n_query)
        loss = nn.functional.cross_entropy(-dist, target)
        return loss, (dist.argmin(1) == target).float().mean().item()
