import torch

from rollout import ActorCritic


class PPO:
    def __init__(self, lr=3e-4, clip=0.2, gamma=0.97, epochs=40, minibatch=128):
        self.model = ActorCritic()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.clip, self.gamma, self.epochs, self.minibatch = clip, gamma, epochs, minibatch

    def weights(self):
        return {k: v.numpy().copy() for k, v in self.model.state_dict().items()}

    def returns(self, rewards):
        out, running = torch.empty_like(rewards), 0.0
        for t in range(len(rewards) - 1, -1, -1):
            running = rewards[t] + self.gamma * running
            out[t] = running
        return out

    def update(self, rollouts):
        parts = [[torch.from_numpy(a) for a in rollout] for rollout in rollouts]
        obs, actions, old = (torch.cat([p[i] for p in parts]) for i in range(3))
        returns = torch.cat([self.returns(p[3]) for p in parts])
        for _ in range(self.epochs):
            for pick in torch.randperm(len(obs)).split(self.minibatch):
                logits, value = self.model(obs[pick])
                logp = torch.distributions.Categorical(logits=logits).log_prob(actions[pick])
                advantage = (returns[pick] - value).detach()
                ratio = (logp - old[pick]).exp()
                policy = -torch.min(ratio * advantage, ratio.clamp(1 - self.clip, 1 + self.clip) * advantage).mean()
                loss = policy + 0.5 * (returns[pick] - value).pow(2).mean()
                self.optim.zero_grad()
                loss.backward()
                self.optim.step()
        return loss.item(), len(obs)
