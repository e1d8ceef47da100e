import torch
from torch.utils.data import Dataset


class TriplesFactory:
    """Random knowledge graph with Zipf like entity degrees."""

    def __init__(self, n_entities=4000, n_relations=18, n_triples=60000, seed=0):
        g = torch.Generator().manual_seed(seed)
        weights = 1.0 / torch.arange(1, n_entities + 1).float() ** 0.7
        h = torch.multinomial(weights, n_triples, replacement=True, generator=g)
        t = torch.multinomial(weights, n_triples, replacement=True, generator=g)
        r = torch.randint(0, n_relations, (n_triples,), generator=g)
        self.mapped_triples = torch.stack([h, r, t], dim=1)
        self.n_entities, self.n_relations = n_entities, n_relations


class BasicNegativeSampler:
    """Replaces head or tail of positives by a uniformly drawn entity."""

    def __init__(self, factory, num_negs_per_pos):
        self.n_entities = factory.n_entities
        self.num_negs_per_pos = num_negs_per_pos
        self.known = set(map(tuple, factory.mapped_triples.tolist()))

    def corrupt_batch(self, positives):
        """positives (b, 3) -> negatives (b, k, 3) and the mask of those which are not known facts"""
        k = self.num_negs_per_pos
        negatives = positives.unsqueeze(1).repeat(1, k, 1)
        column = torch.randint(0, 2, negatives.shape[:2]) * 2
        entity = torch.randint(0, self.n_entities, negatives.shape[:2])
        negatives.scatter_(2, column.unsqueeze(2), entity.unsqueeze(2))
        mask = torch.tensor([[tuple(n) not in self.known for n in row] for row in negatives.tolist()])
        return negatives, mask


class SLCWAInstances(Dataset):
    def __init__(self, factory, sampler):
        self.triples = factory.mapped_triples
        self.sampler = sampler

    def __len__(self):
        return len(self.triples)

    def __getitem__(self, i):
        positive = self.triples[i].unsqueeze(0)
        negative, mask = self.sampler.corrupt_batch(positive)
        return positive, negative, mask

    @staticmethod
    def collate(samples):
        positives, negatives, masks = zip(*samples)
        return torch.cat(positives), torch.cat(negatives), torch.cat(masks)
