from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Cohort:
    name: str
    click_rate: float
    noise: float


COHORTS = [Cohort("north", 0.04, 0.2), Cohort("central", 0.25, 1.0), Cohort("south", 0.50, 3.0)]


class ClickLog:
    """Clicks of one cohort; the cohorts differ in how often and how predictably people click."""

    def __init__(self, cohort, users, items, batch_size, seed):
        self.cohort = cohort
        self.users, self.items, self.batch_size = users, items, batch_size
        self.generator = torch.Generator().manual_seed(seed)
        taste = torch.Generator().manual_seed(77)
        self.user_taste = torch.randn(users, 4, generator=taste)
        self.item_taste = torch.randn(items, 4, generator=taste)
        self.offset = torch.logit(torch.tensor(cohort.click_rate)) * 1.3

    def next(self):
        user = torch.randint(self.users, (self.batch_size,), generator=self.generator)
        item = torch.randint(self.items, (self.batch_size,), generator=self.generator)
        affinity = (self.user_taste[user] * self.item_taste[item]).sum(1) * 0.5
        noise = self.cohort.noise * torch.randn(self.batch_size, generator=self.generator)
        label = (affinity + noise + self.offset > 0).float()
        return user, item, label
