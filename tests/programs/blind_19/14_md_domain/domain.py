"""Slab decomposition: every rank owns some atoms and keeps a halo of its neighbours' atoms."""
import torch
import torch.distributed as dist

PER_GRAPH = {"energy", "pressure"}


class SlabDomain:
    def __init__(self, rank, world, atoms_per_rank, halo_per_peer, n_graphs, seed=0):
        g = torch.Generator().manual_seed(seed + rank)
        self.rank, self.world = rank, world
        self.n_owned, self.halo = atoms_per_rank, halo_per_peer
        self.n_graphs = n_graphs
        self.pos = 4 * torch.rand(atoms_per_rank, 3, generator=g) - 2
        self.vel = 0.1 * torch.randn(atoms_per_rank, 3, generator=g)
        self.graph = torch.randint(0, n_graphs, (atoms_per_rank,), generator=g)
        self.send_index = torch.stack(
            [torch.randperm(atoms_per_rank, generator=g)[:halo_per_peer] for _ in range(world)])

    def exchange_halo(self):
        send = self.pos[self.send_index.flatten()].contiguous()
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        return torch.cat([self.pos, recv])

    def reverse_exchange(self, values):
        """Adds what this rank computed for halo atoms to their owners."""
        send = values[self.n_owned:].contiguous()
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        return values[: self.n_owned].clone().index_add_(0, self.send_index.flatten(), recv)

    def consolidate(self, outputs):
        merged = {}
        for key, value in outputs.items():
            if key in PER_GRAPH:
                dist.all_reduce(value)
                merged[key] = value
            else:
                merged[key] = self.reverse_exchange(value)
        return merged
