import torch
from torch import nn


class TreeEncoder(nn.Module):
    """Encodes all trees of a batch level by level, from the leaves to the roots."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.leaf = nn.Linear(dim, hidden)
        self.merge = nn.Linear(dim + 2 * hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, roots):
        levels, level = [], list(roots)
        while level:
            levels.append(level)
            level = [c for node in level for c in node.children]
        for nodes in reversed(levels):
            x = torch.stack([n.features for n in nodes])
            if nodes[0].op is None:
                h = torch.tanh(self.leaf(x))
            else:
                kids = torch.stack([torch.cat([c.hidden for c in n.children]) for n in nodes])
                h = torch.tanh(self.merge(torch.cat([x, kids], dim=1)))
            for node, row in zip(nodes, h):
                node.hidden = row
        roots_h = torch.stack([r.hidden for r in roots])
        return self.out(roots_h).squeeze(-1)
