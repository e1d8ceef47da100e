import torch
from torch import nn


class Policy(nn.Module):
    """Wide token policy: an embedding, a recurrent mixer, a deep projection stack."""

    def __init__(self, vocab=4096, dim=768, layers=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(),
                                                  nn.Linear(2 * dim, dim)) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + x.cumsum(1) / torch.arange(1, x.size(1) + 1, device=x.device).view(1, -1, 1)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def sample(self, prompts, new_tokens):
        tokens = prompts
        for _ in range(new_tokens):
            logits = self(tokens)[:, -1]
            nxt = torch.distributions.Categorical(logits=logits.float()).sample()
            tokens = torch.cat([tokens, nxt.unsqueeze(1)], dim=1)
        return tokens
