"""Synthetic co-purchase graph and its partitions."""
import dataclasses

import numpy as np


@dataclasses.dataclass
class Graph:
    indptr: np.ndarray
    indices: np.ndarray
    feat: np.ndarray
    label: np.ndarray
    train_mask: np.ndarray

    @property
    def num_nodes(self):
        return len(self.indptr) - 1

    def neighbors(self, node):
        return self.indices[self.indptr[node]:self.indptr[node + 1]]


def build_graph(num_nodes, avg_degree, dim, classes, seed):
    """Items are numbered by the date they were listed; old items sell far more often."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / (np.arange(num_nodes) + 40.0)
    degree = np.maximum(2, (weight / weight.sum() * num_nodes * avg_degree)).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    indices = rng.integers(0, num_nodes, size=int(indptr[-1]))
    feat = rng.normal(size=(num_nodes, dim)).astype(np.float32)
    label = rng.integers(0, classes, size=num_nodes)
    train_mask = rng.random(num_nodes) < 0.3
    return Graph(indptr, indices, feat, label, train_mask)


def partition(graph, parts):
    """Node ranges with the same number of training nodes in each partition."""
    train = np.flatnonzero(graph.train_mask)
    return [np.asarray(chunk) for chunk in np.array_split(train, parts)]
