import torch
from torch import nn


class Policy(nn.Module):
    """Produces an 'answer': a length class, a value and a program style."""

    def __init__(self, context=24, hidden=64, styles=8):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(context, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.style = nn.Linear(hidden, styles)
        self.value = nn.Linear(hidden, 1)

    def forward(self, prompts):
        h = self.trunk(prompts)
        return torch.distributions.Categorical(logits=self.style(h)), \
            torch.distributions.Normal(self.value(h).squeeze(-1), 0.5)

    def act(self, prompts):
        style_dist, value_dist = self(prompts)
        style, value = style_dist.sample(), value_dist.sample()
        return style, value, style_dist.log_prob(style) + value_dist.log_prob(value)


def to_answers(style, value, step, cases):
    return [{"length": 60 + 20 * int(s), "value": float(v), "seed": step * 1000 + i, "cases": cases}
            for i, (s, v) in enumerate(zip(style, value))]
