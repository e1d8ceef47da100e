import torch


class PolicyMemory:
    """Transitions of the running policy."""

    def __init__(self):
        self.states, self.actions, self.rewards, self.logprobs = [], [], [], []

    def __len__(self):
        return len(self.states)

    def save_all(self, traj):
        s, a, r, lp = traj
        self.states += s
        self.actions += a
        self.rewards += r
        self.logprobs += lp

    def get_all_items(self):
        return (torch.tensor(self.states), torch.tensor(self.actions), torch.tensor(self.rewards),
                torch.tensor(self.logprobs))

    def clear_memory(self):
        del self.states[:], self.actions[:], self.rewards[:], self.logprobs[:]
