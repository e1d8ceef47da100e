"""Prioritised replay: a sum tree over a ring buffer."""
import torch


class SegmentTree:
    def __init__(self, size, device):
        self.size = size
        self.index = 0
        self.full = False
        self.device = device
        self.sum_tree = torch.zeros(2 * size - 1, device=device)
        self.max = torch.ones((), device=device)

    def _propagate(self, index):
        parent = (index - 1) // 2
        left, right = 2 * parent + 1, 2 * parent + 2
        self.sum_tree[parent] = self.sum_tree[left] + self.sum_tree[right]
        if parent != 0:
            self._propagate(parent)

    def update(self, index, value):
        self.sum_tree[index] = value
        self._propagate(index)
        self.max = torch.maximum(value, self.max)

    def append(self, value):
        slot = self.index
        self.update(slot + self.size - 1, value)
        self.index = (self.index + 1) % self.size
        self.full = self.full or self.index == 0
        return slot

    def find(self, value):
        index = 0
        while 2 * index + 1 < len(self.sum_tree):
            left = 2 * index + 1
            if value <= self.sum_tree[left]:
                index = left
            else:
                value = value - self.sum_tree[left]
                index = left + 1
        return self.sum_tree[index], index - self.size + 1, index

    def total(self):
        return self.sum_tree[0]


class ReplayMemory:
    def __init__(self, capacity, obs_dim, device, omega=0.5, beta=0.4):
        self.device = device
        self.omega, self.beta = omega, beta
        self.transitions = SegmentTree(capacity, device)
        self.obs = torch.zeros(capacity, obs_dim, device=device)
        self.next_obs = torch.zeros(capacity, obs_dim, device=device)
        self.actions = torch.zeros(capacity, dtype=torch.long, device=device)
        self.rewards = torch.zeros(capacity, device=device)
        self.length = 0

    def append(self, obs, action, reward, next_obs):
        slot = self.transitions.append(self.transitions.max)
        self.obs[slot] = torch.from_numpy(obs).to(self.device)
        self.next_obs[slot] = torch.from_numpy(next_obs).to(self.device)
        self.actions[slot] = action
        self.rewards[slot] = reward
        self.length = min(self.length + 1, self.transitions.size)

    def sample(self, batch_size):
        total = self.transitions.total()
        segment = total / batch_size
        probs, slots, nodes = [], [], []
        for i in range(batch_size):
            point = (torch.rand((), device=self.device) + i) * segment
            prob, slot, node = self.transitions.find(point)
            probs.append(prob)
            slots.append(min(slot, self.length - 1))
            nodes.append(node)
        probs = torch.stack(probs).clamp_min(1e-6) / total
        weights = (self.length * probs) ** -self.beta
        idx = torch.tensor(slots, device=self.device)
        return nodes, self.obs[idx], self.actions[idx], self.rewards[idx], self.next_obs[idx], weights / weights.max()

    def update_priorities(self, nodes, priorities):
        for node, priority in zip(nodes, priorities.pow(self.omega)):
            self.transitions.update(node, priority)
