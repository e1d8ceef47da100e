"""A scripted agent that solves repository tasks with a small policy and shell tools."""
import random
import subprocess
import time

import torch
from torch import nn

TOOLS = {
    "ls": ["ls", "/usr/share"],
    "grep": ["grep", "-c", "root", "/etc/passwd"],
    "wc": ["wc", "-c", "/etc/services"],
}


class ToolPolicy(nn.Module):
    def __init__(self, n_tools, hidden=128):
        super().__init__()
        self.hidden = hidden
        self.rnn = nn.GRUCell(16, hidden)
        self.head = nn.Linear(hidden, n_tools + 1)

    @torch.no_grad()
    def act(self, observation, state):
        state = self.rnn(observation, state)
        return int(torch.distributions.Categorical(logits=self.head(state)).sample()), state


class Agent:
    def __init__(self, seed, max_turns=12):
        torch.manual_seed(seed)
        self.names = sorted(TOOLS)
        self.policy = ToolPolicy(len(self.names))
        self.rng = random.Random(seed)
        self.max_turns = max_turns

    def load_checkpoint(self, seconds):
        deadline = time.time() + seconds
        while time.time() < deadline:
            torch.randn(256, 256) @ torch.randn(256, 256)
            time.sleep(0.05)

    def run_tool(self, name):
        out = subprocess.run(TOOLS[name], capture_output=True, timeout=10, stdin=subprocess.DEVNULL)
        return len(out.stdout)

    def solve(self, task):
        state = torch.zeros(1, self.policy.hidden)
        observation = torch.randn(1, 16)
        transcript = []
        for _ in range(self.max_turns):
            action, state = self.policy.act(observation, state)
            if action == len(self.names):
                break
            size = self.run_tool(self.names[action])
            transcript.append((self.names[action], size))
            observation = torch.randn(1, 16) + size * 1e-6
            time.sleep(self.rng.uniform(0.05, 0.15))
        return {"task": task, "turns": len(transcript), "solved": self.rng.random() < 0.3}
