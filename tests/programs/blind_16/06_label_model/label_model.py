import logging
import time
from dataclasses import dataclass

import torch
import torch.nn as nn

log = logging.getLogger("labelmodels")


@dataclass
class LearningConfig:
    epochs: int = 5
    batch_size: int = 64
    step_size: float = 0.01
    step_schedule: float = 0.9


class LabelModel(nn.Module):
    """Base class: parameters, regularization and the training loop."""

    def forward(self, votes):
        raise NotImplementedError

    def _get_regularization_loss(self):
        return 0.0

    def estimate(self, loader, config):
        optimizer = torch.optim.SGD(self.parameters(), lr=config.step_size, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, config.step_schedule)
        for epoch in range(config.epochs):
            log.info("Epoch %d/%d", epoch + 1, config.epochs)
            self.train()
            running_loss = 0.0
            start = time.perf_counter()
            for i, votes in enumerate(loader, 1):
                optimizer.zero_grad()
                loss = -torch.mean(self(votes)) + self._get_regularization_loss()
                loss.backward()
                optimizer.step()
                running_loss += loss
                if i % 20 == 0:
                    log.info("batch %d, %.1f batches/s", i, i / (time.perf_counter() - start))
            scheduler.step()
            log.info("Train loss: %.6f", running_loss / i)


class LinkedLabelModel(LabelModel):
    """A hidden Markov model with one emission table per labeling function."""

    def __init__(self, n_classes, n_functions, acc_prior=0.05):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(n_classes))
        self.transitions = nn.Parameter(torch.zeros(n_classes, n_classes))
        self.accuracy = nn.Parameter(torch.full((n_functions, n_classes), 1.0))
        self.propensity = nn.Parameter(torch.zeros(n_functions))
        self.acc_prior = acc_prior
        self.n_classes = n_classes

    def _emission(self, votes):
        """log P(votes of a token | class), votes: batch x functions."""
        total = torch.zeros(len(votes), self.n_classes)
        for j in range(votes.shape[1]):
            vote = votes[:, j]
            match = vote.unsqueeze(1) == torch.arange(1, self.n_classes + 1)
            z = torch.logsumexp(torch.stack([self.accuracy[j], -self.accuracy[j]]), dim=0)
            said = torch.where(match, self.accuracy[j], -self.accuracy[j]) - z
            speak = nn.functional.logsigmoid(self.propensity[j])
            silent = nn.functional.logsigmoid(-self.propensity[j])
            total = total + torch.where((vote > 0).unsqueeze(1), said + speak, silent)
        return total

    def forward(self, votes):
        transitions = torch.log_softmax(self.transitions, dim=1)
        alpha = torch.log_softmax(self.start, dim=0) + self._emission(votes[:, 0])
        for t in range(1, votes.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + transitions, dim=1) + self._emission(votes[:, t])
        return torch.logsumexp(alpha, dim=1)

    def _get_regularization_loss(self):
        return self.acc_prior * ((self.accuracy - 1.0) ** 2).sum()
