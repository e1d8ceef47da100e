"""Small hybrid CTC / attention acoustic model."""
import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, feat_dim, hidden):
        super().__init__()
        self.sub = nn.Conv1d(feat_dim, hidden, kernel_size=3, stride=2, padding=1)
        self.layers = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(3)])

    def forward(self, feats):
        x = F.relu(self.sub(feats.transpose(1, 2))).transpose(1, 2)
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.relu(layer(norm(x)))
        return x


class AttentionDecoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.attn = nn.MultiheadAttention(hidden, 4, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, memory, tokens):
        query = self.embed(tokens)
        context, _ = self.attn(query, memory, memory, need_weights=False)
        return self.out(query + context)


class HybridASR(nn.Module):
    def __init__(self, feat_dim=40, hidden=96, vocab=30):
        super().__init__()
        self.encoder = Encoder(feat_dim, hidden)
        self.ctc_head = nn.Linear(hidden, vocab)
        self.decoder = AttentionDecoder(vocab, hidden)

    def forward_encoder(self, feats):
        memory = self.encoder(feats)
        return memory, self.ctc_head(memory).log_softmax(dim=-1)

    def forward_decoder(self, memory, tokens):
        return self.decoder(memory, tokens)

    def forward(self, feats, tokens):
        memory, ctc = self.forward_encoder(feats)
        return ctc, self.forward_decoder(memory, tokens)


def hybrid_loss(ctc_logp, att_logits, tokens, ctc_weight):
    batch, frames, _ = ctc_logp.shape
    lengths = torch.full((batch,), frames, dtype=torch.long)
    target_lengths = torch.full((batch,), tokens.shape[1], dtype=torch.long)
    ctc = F.ctc_loss(ctc_logp.transpose(0, 1), tokens, lengths, target_lengths, zero_infinity=True)
    att = F.cross_entropy(att_logits[:, :-1].reshape(-1, att_logits.shape[-1]), tokens[:, 1:].reshape(-1))
    return ctc_weight * ctc + (1 - ctc_weight) * att
