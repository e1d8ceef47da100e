"""Rollouts of a group per prompt, as the generator hands them over: siblings in a row."""
import torch


class RolloutBuffer:
    def __init__(self, prompts, group_size, vocab, seed):
        self.prompts = prompts
        self.group_size = group_size
        self.vocab = vocab
        self.gen = torch.Generator().manual_seed(seed)

    def next_batch(self):
        """Difficulties go from short arithmetic to olympiad tasks within every batch."""
        samples = []
        for p in range(self.prompts):
            level = (p + 1) / self.prompts
            typical = 24 + 620 * level ** 4
            for _ in range(self.group_size):
                spread = 0.85 + 0.3 * torch.rand((), generator=self.gen).item()
                length = int(typical * spread)
                tokens = torch.randint(self.vocab, (length,), generator=self.gen)
                reward = float(torch.rand((), generator=self.gen) > level * 0.8)
                samples.append({"group": p, "tokens": tokens, "reward": reward})
        return samples


def group_advantages(samples, group_size):
    rewards = torch.tensor([s["reward"] for s in samples]).view(-1, group_size)
    adv = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    for s, a in zip(samples, adv.flatten().tolist()):
        s["advantage"] = a
    return samples
