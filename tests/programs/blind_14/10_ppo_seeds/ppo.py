"""PPO with generalised advantage estimates for discrete actions."""
import torch
from torch import nn
import torch.nn.functional as F
from torch.distributions import Categorical


class PPO(nn.Module):
    def __init__(self, state_dim, action_dim, hidden, lr, gamma, lmbda, eps_clip, k_epoch):
        super().__init__()
        self.gamma, self.lmbda, self.eps_clip, self.k_epoch = gamma, lmbda, eps_clip, k_epoch
        self.body = nn.Sequential(nn.Linear(state_dim, hidden), nn.Tanh())
        self.fc_pi = nn.Linear(hidden, action_dim)
        self.fc_v = nn.Linear(hidden, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        self.data = []

    def pi(self, x):
        return F.softmax(self.fc_pi(self.body(x)), dim=-1)

    def v(self, x):
        return self.fc_v(self.body(x))

    def choose_action(self, state):
        with torch.no_grad():
            prob = self.pi(torch.from_numpy(state))
        dist = Categorical(prob)
        action = dist.sample()
        return action.item(), prob[action].item()

    def put_data(self, transition):
        self.data.append(transition)

    def make_batch(self):
        s, a, r, s2, p, d = zip(*self.data)
        self.data = []
        as_float = lambda rows: torch.stack([torch.as_tensor(x, dtype=torch.float32) for x in rows])
        return (as_float(s), torch.tensor(a)[:, None], as_float(r)[:, None], as_float(s2),
                as_float(p)[:, None], 1 - as_float(d)[:, None])

    def train_net(self):
        s, a, r, s2, old_prob, not_done = self.make_batch()
        for _ in range(self.k_epoch):
            target = r + self.gamma * self.v(s2) * not_done
            delta = (target - self.v(s)).detach()
            advantages = []
            advantage = 0.0
            for d in reversed(delta[:, 0].tolist()):
                advantage = self.gamma * self.lmbda * advantage + d
                advantages.append([advantage])
            adv = torch.tensor(advantages[::-1])
            adv = (adv - adv.mean()) / (adv.std() + 1e-5)
            ratio = torch.exp(torch.log(self.pi(s).gather(1, a)) - torch.log(old_prob))
            clipped = torch.clamp(ratio, 1 - self.eps_clip, 1 + self.eps_clip)
            loss = -torch.min(ratio * adv, clipped * adv) + F.smooth_l1_loss(self.v(s), target.detach())
            self.optimizer.zero_grad()
            loss.mean().backward()
            self.optimizer.step()
        return loss.mean().item()
