import torch
from torch import nn

from sharded import ShardedLinear

PAD, BOS, EOS = 0, 1, 2


class TinyLM(nn.Module):
    """A causal bag-of-context language model with sharded projections."""

    def __init__(self, vocab, dim, layers, group=None, seed=0):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        self.register_buffer("embed", torch.randn(vocab, dim, generator=gen) * 0.5)
        self.blocks = nn.ModuleList(
            ShardedLinear(dim, dim, group, seed=seed + 1 + i) for i in range(layers))
        self.head = ShardedLinear(dim, vocab, group, seed=seed + 97)

    def forward(self, tokens):
        x = self.embed[tokens]
        length = torch.arange(1, tokens.shape[1] + 1, dtype=x.dtype)
        x = x.cumsum(dim=1) / length[None, :, None]
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.head(x)

    @torch.no_grad()
    def generate(self, prompts, max_new_tokens, eos_token_id=EOS, generator=None):
        tokens = prompts
        finished = torch.zeros(prompts.shape[0], dtype=torch.bool)
        for _ in range(max_new_tokens):
            logits = self(tokens)[:, -1].clone()
            logits[:, PAD] = float("-inf")
            nxt = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
            nxt = torch.where(finished, torch.full_like(nxt, PAD), nxt)
            tokens = torch.cat([tokens, nxt[:, None]], dim=1)
            if eos_token_id is not None:
                finished |= nxt.eq(eos_token_id)
                if finished.all():
                    break
        return tokens
