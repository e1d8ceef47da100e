"""Manifest and dependency graph of the project."""
import random
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Node:
    unique_id: str
    kind: str
    depends_on: list = field(default_factory=list)
    config: dict = field(default_factory=dict)
    cost: float = 0.1


class SourceFreshness(Node):
    """A source: it has a loaded_at column and a freshness window."""


class Graph:
    def __init__(self, nodes):
        self.nodes = {n.unique_id: n for n in nodes}
        self.children = defaultdict(list)
        self.pending = {}
        for node in nodes:
            self.pending[node.unique_id] = set(node.depends_on)
            for parent in node.depends_on:
                self.children[parent].append(node.unique_id)

    def layers(self):
        """Topological layers: all nodes of a layer can run side by side."""
        done = set()
        todo = dict(self.pending)
        while todo:
            layer = [k for k, deps in todo.items() if deps <= done]
            if not layer:
                raise ValueError("cycle in the graph")
            for key in layer:
                todo.pop(key)
            done.update(layer)
            yield [self.nodes[k] for k in sorted(layer)]


def load_project(seed, models_per_layer, depth):
    rng = random.Random(seed)
    nodes = []
    previous = []
    for i in range(6):
        src = SourceFreshness(f"source.shop.raw_{i:02d}", "source", [],
                              {"loaded_at_field": "_loaded_at", "warn_after": 3600}, 0.15)
        nodes.append(src)
        previous.append(src.unique_id)
    for level in range(depth):
        current = []
        for i in range(models_per_layer):
            deps = rng.sample(previous, min(2, len(previous)))
            cfg = {"materialized": rng.choice(["view", "table"]), "warn_after": 3600}
            node = Node(f"model.shop.l{level:02d}_m{i:02d}", "model", deps, cfg, rng.uniform(0.1, 0.35))
            current.append(node)
        if level == 4:
            current[3].config = {"materialized": "incremental", "unique_key": None}
        nodes.extend(current)
        previous = [n.unique_id for n in current]
    return Graph(nodes)
