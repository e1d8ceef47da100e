import torch
from torch import nn


class LinearChainCRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags) * 0.1)
        self.start = nn.Parameter(torch.zeros(num_tags))

    def partition(self, emissions):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            scores = alpha.unsqueeze(2) + self.transitions.unsqueeze(0) + emissions[:, t].unsqueeze(1)
            alpha = torch.logsumexp(scores, dim=1)
        return torch.logsumexp(alpha, dim=1)

    def path_score(self, emissions, tags):
        picked = emissions.gather(2, tags.unsqueeze(-1)).squeeze(-1).sum(dim=1)
        moves = self.transitions[tags[:, :-1], tags[:, 1:]].sum(dim=1)
        return picked + moves + self.start[tags[:, 0]]

    def forward(self, emissions, tags):
        return self.partition(emissions) - self.path_score(emissions, tags)


class BiLSTMTagger(nn.Module):
    def __init__(self, vocab_size, num_tags, embedding_dim=96, hidden_dim=160):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, bidirectional=True, batch_first=True)
        self.to_tags = nn.Linear(2 * hidden_dim, num_tags)
        self.crf = LinearChainCRF(num_tags)

    def neg_log_likelihood(self, words, tags):
        features, _ = self.lstm(self.embedding(words))
        return self.crf(self.to_tags(features), tags)
