"""Random walks over a ring with shortcuts."""
import random


class WalkSampler:
    def __init__(self, nodes, length, hop_rate, seed):
        self.nodes, self.length, self.hop_rate = nodes, length, hop_rate
        self.rng = random.Random(seed)

    def sample(self, community):
        base = community * (self.nodes // 16)
        node = base + self.rng.randrange(self.nodes // 16)
        walk = [node]
        while len(walk) < self.length:
            if self.rng.random() < self.hop_rate:
                node = (node + self.rng.choice((7, 61, 113))) % self.nodes
            else:
                node = (node + 8) % self.nodes
            walk.append(node)
        return walk
