import time

import torch
from torch import nn


class ConvPolicy(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.pi = nn.Linear(32 * 9 * 9, actions)
        self.value = nn.Linear(32 * 9 * 9, 1)

    def forward(self, frames):
        h = self.features(frames)
        return self.pi(h), self.value(h).squeeze(-1)


class FrameEnv:
    """A moving blob on a noisy 84x84 screen; the right action follows it."""

    def __init__(self, seed, device):
        self.gen = torch.Generator().manual_seed(seed)
        self.device = device
        self.position = 40.0

    def observe(self):
        frames = torch.rand(4, 84, 84, generator=self.gen) * 0.1
        column = int(self.position)
        frames[:, 36:48, column : column + 8] = 1.0
        return frames.to(self.device)

    def step(self, action):
        move = int(torch.randint(-6, 7, (1,), generator=self.gen))
        self.position = min(max(self.position + move, 0.0), 75.0)
        return 1.0 if (action >= 3) == (move >= 0) else 0.0


def actor_loop(actor_id, device, rollout_length, step_time, weights_queue, trajectory_queue):
    torch.set_num_threads(1)
    device = torch.device(device)
    policy = ConvPolicy().to(device)
    env = FrameEnv(actor_id, device)
    episode = 0
    while True:
        while not weights_queue.empty():
            policy.load_state_dict(weights_queue.get())
        frames, actions, rewards = [], [], []
        with torch.no_grad():
            for _ in range(rollout_length):
                obs = env.observe()
                logits, _ = policy(obs.unsqueeze(0))
                action = int(torch.distributions.Categorical(logits=logits).sample())
                frames.append(obs)
                actions.append(action)
                rewards.append(env.step(action))
                time.sleep(step_time)
        episode += 1
        trajectory_queue.put(
            (actor_id, episode, torch.stack(frames), torch.tensor(actions, device=device), rewards)
        )
