"""Turns SMILES like strings into graphs with shortest path and ring features, in plain Python."""
import random
from collections import deque

import torch

ATOMS = "CNOSFPB"


def random_molecule(rng):
    n = rng.randint(24, 40)
    atoms = [rng.choice(ATOMS) for _ in range(n)]
    bonds = [(i, rng.randint(max(0, i - 4), i - 1)) for i in range(1, n)]
    for _ in range(rng.randint(1, 5)):
        a, b = rng.sample(range(n), 2)
        bonds.append((a, b))
    return atoms, bonds


def neighbours(n, bonds):
    adj = [[] for _ in range(n)]
    for a, b in bonds:
        adj[a].append(b)
        adj[b].append(a)
    return adj


def shortest_paths(adj):
    out = []
    for s in range(len(adj)):
        dist = [-1] * len(adj)
        dist[s] = 0
        todo = deque([s])
        while todo:
            u = todo.popleft()
            for v in adj[u]:
                if dist[v] < 0:
                    dist[v] = dist[u] + 1
                    todo.append(v)
        out.append(dist)
    return out


def wl_labels(atoms, adj, rounds=6):
    labels = list(atoms)
    for _ in range(rounds):
        labels = [str(hash((labels[i], tuple(sorted(labels[j] for j in adj[i])))) % 97) for i in range(len(adj))]
    return [int(l) for l in labels]


def featurise(atoms, bonds, size=40):
    adj = neighbours(len(atoms), bonds)
    spd = shortest_paths(adj)
    wl = wl_labels(atoms, adj)
    x = torch.zeros(size, 10)
    pair = torch.zeros(size, size)
    for i, a in enumerate(atoms):
        x[i, ATOMS.index(a)] = 1
        x[i, 7] = len(adj[i])
        x[i, 8] = wl[i] / 97
        x[i, 9] = 1
    pair[: len(atoms), : len(atoms)] = torch.tensor(spd).float()
    y = sum(1 for a, b in bonds if {atoms[a], atoms[b]} == {"C", "O"}) + 0.1 * max(map(max, spd))
    return x, pair, float(y)


def molecules(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        yield random_molecule(rng)
