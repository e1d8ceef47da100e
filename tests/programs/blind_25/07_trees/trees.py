"""Random expression trees; the model learns to predict their value."""
import random

import torch

OPS = ("min", "max", "mean")


class Node:
    __slots__ = ("op", "value", "children", "parent", "features", "hidden", "__weakref__")

    def __init__(self, op=None, value=None, parent=None):
        self.op, self.value, self.parent = op, value, parent
        self.children = []
        self.features = None
        self.hidden = None

    def evaluate(self):
        if self.op is None:
            return self.value
        values = [c.evaluate() for c in self.children]
        if self.op == "mean":
            return sum(values) / len(values)
        return min(values) if self.op == "min" else max(values)


class TreeSource:
    def __init__(self, dim, depth, seed):
        self.dim, self.depth = dim, depth
        self.rng = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)

    def grow(self, depth, parent=None):
        if depth == 0:
            node = Node(value=self.rng.uniform(-1, 1), parent=parent)
        else:
            node = Node(op=self.rng.choice(OPS), parent=parent)
            node.children = [self.grow(depth - 1, node) for _ in range(2)]
        node.features = self.featurize(node)
        return node

    def featurize(self, node):
        x = 0.01 * torch.randn(self.dim, generator=self.gen)
        if node.op is None:
            x[0] = node.value
        else:
            x[1 + OPS.index(node.op)] = 1.0
        return x

    def batch(self, n):
        return [self.grow(self.depth) for _ in range(n)]
