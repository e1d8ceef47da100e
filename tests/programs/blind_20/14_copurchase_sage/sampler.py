"""Mini-batches of seed nodes with their full neighbourhood."""
import numpy as np
import torch


class NeighborLoader:
    def __init__(self, graph, seeds, batch_size, seed):
        self.graph = graph
        self.seeds = seeds
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.seeds) // self.batch_size

    def __iter__(self):
        order = self.rng.permutation(self.seeds)
        for i in range(len(self)):
            yield self.block(order[i * self.batch_size:(i + 1) * self.batch_size])

    def block(self, seeds):
        src, dst = [], []
        for pos, node in enumerate(seeds):
            neigh = self.graph.neighbors(node)
            src.append(neigh)
            dst.append(np.full(len(neigh), pos))
        src = np.concatenate(src)
        x_src = torch.from_numpy(self.graph.feat[src])
        x_dst = torch.from_numpy(self.graph.feat[seeds])
        return (x_src, torch.from_numpy(np.concatenate(dst)), x_dst,
                torch.from_numpy(self.graph.label[seeds]))
