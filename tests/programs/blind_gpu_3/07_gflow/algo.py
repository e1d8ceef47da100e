"""Trajectory balance for a fragment-building policy."""
import torch
import torch.nn as nn


class FragmentPolicy(nn.Module):
    def __init__(self, num_fragments, hidden, depth):
        super().__init__()
        layers, width = [], num_fragments
        for _ in range(depth):
            layers += [nn.Linear(width, hidden), nn.LeakyReLU()]
            width = hidden
        self.net = nn.Sequential(*layers, nn.Linear(width, num_fragments))
        self.log_z = nn.Parameter(torch.zeros(()))

    def forward(self, state):
        return torch.log_softmax(self.net(state), -1)


class TrajectoryBalance:
    def __init__(self, policy, num_fragments, max_len, device):
        self.policy, self.device = policy, device
        self.num_fragments, self.max_len = num_fragments, max_len

    def create_training_data(self, n):
        """Roll out n molecules; returns one dict per trajectory."""
        state = torch.zeros(n, self.num_fragments, device=self.device)
        states, actions, fwd_logprobs = [], [], []
        for _ in range(self.max_len):
            logp = self.policy(state)
            action = torch.multinomial(logp.exp(), 1).squeeze(1)
            states.append(state)
            actions.append(action)
            fwd_logprobs.append(logp.gather(1, action[:, None]).squeeze(1))
            state = state + nn.functional.one_hot(action, self.num_fragments)
        states, actions = torch.stack(states, 1), torch.stack(actions, 1)
        fwd_logprobs = torch.stack(fwd_logprobs, 1)
        return [
            {"states": states[i], "actions": actions[i], "fwd_logprob": fwd_logprobs[i].sum(), "final": state[i]}
            for i in range(n)
        ]

    def compute_loss(self, trajectories):
        states = torch.stack([t["states"] for t in trajectories])
        actions = torch.stack([t["actions"] for t in trajectories])
        log_reward = torch.tensor([t["log_reward"] for t in trajectories], device=self.device)
        logp = self.policy(states).gather(2, actions[..., None]).squeeze(-1).sum(1)
        return (self.policy.log_z + logp - log_reward).pow(2).mean()
