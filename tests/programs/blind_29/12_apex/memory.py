"""Prioritized experience memory."""
import random


class PrioritizedMemory:
    """Proportional prioritization (Schaul et al., 2016)."""

    def __init__(self, capacity, alpha=0.6, epsilon=1e-3):
        self.capacity = capacity
        self.alpha, self.epsilon = alpha, epsilon
        self.items = []
        self.priorities = []
        self.position = 0
        self.total = 0.0

    def __len__(self):
        return len(self.items)

    def add(self, item, error):
        priority = (abs(error) + self.epsilon) ** self.alpha
        if len(self.items) < self.capacity:
            self.items.append(item)
            self.priorities.append(priority)
        else:
            self.total -= self.priorities[self.position]
            self.items[self.position] = item
            self.priorities[self.position] = priority
        self.total += priority
        self.position = (self.position + 1) % self.capacity

    def _find(self, mass):
        for index, priority in enumerate(self.priorities):
            mass -= priority
            if mass <= 0.0:
                return index
        return len(self.priorities) - 1

    def sample(self, batch_size):
        indices = [self._find(random.random() * self.total) for _ in range(batch_size)]
        weights = [self.total / (len(self.items) * self.priorities[i]) for i in indices]
        largest = max(weights)
        return indices, [w / largest for w in weights], [self.items[i] for i in indices]

    def update(self, indices, errors):
        for index, error in zip(indices, errors):
            priority = (abs(error) + self.epsilon) ** self.alpha
            self.total += priority - self.priorities[index]
            self.priorities[index] = priority
