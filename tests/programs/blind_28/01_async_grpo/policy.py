import torch
from torch import nn


class TinyPolicy(nn.Module):
    """Character level policy used for the arithmetic task."""

    def __init__(self, vocab=32, width=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens, state=None):
        out, state = self.rnn(self.emb(tokens), state)
        return self.head(out), state

    @torch.no_grad()
    def sample(self, prompt, max_new_tokens, eos=0):
        logits, state = self(prompt.unsqueeze(0))
        produced = []
        for _ in range(max_new_tokens):
            token = torch.distributions.Categorical(logits=logits[0, -1]).sample()
            produced.append(int(token))
            if int(token) == eos:
                break
            logits, state = self(token.view(1, 1), state)
        return produced
