import logging

import torch

from actor import ConvPolicy

log = logging.getLogger("learner")


class EpisodeBook:
    """Remembers the episodes, so that the best ones can be rendered at the end of the run."""

    def __init__(self, render_best=5):
        self.render_best = render_best
        self.episodes = {}

    def record(self, actor_id, episode, frames, rewards):
        self.episodes[(actor_id, episode)] = (sum(rewards), frames)

    def best(self):
        ranked = sorted(self.episodes.items(), key=lambda item: item[1][0], reverse=True)
        return ranked[: self.render_best]


class Learner:
    def __init__(self, device, lr=3e-4, gamma=0.95):
        self.device = torch.device(device)
        self.policy = ConvPolicy().to(self.device)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.gamma = gamma
        self.book = EpisodeBook()

    def returns(self, rewards):
        out, running = [], 0.0
        for r in reversed(rewards):
            running = r + self.gamma * running
            out.append(running)
        return torch.tensor(out[::-1], device=self.device)

    def update(self, trajectory):
        actor_id, episode, frames, actions, rewards = trajectory
        logits, values = self.policy(frames)
        target = self.returns(rewards)
        logp = torch.distributions.Categorical(logits=logits).log_prob(actions)
        loss = -(logp * (target - values).detach()).mean() + 0.5 * (target - values).pow(2).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.book.record(actor_id, episode, frames, rewards)
        return loss.item()

    def weights(self):
        return {k: v.detach().cpu() for k, v in self.policy.state_dict().items()}
