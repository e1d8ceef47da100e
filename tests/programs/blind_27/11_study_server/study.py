import copy
import math
import random
from dataclasses import dataclass, field

SPACE = {
    "lr": (1e-4, 1e-1, True),
    "momentum": (0.0, 0.99, False),
    "hidden": (8, 64, False),
    "weight_decay": (1e-6, 1e-2, True),
    "noise": (0.0, 0.5, False),
}


@dataclass
class FrozenTrial:
    number: int
    params: dict = field(default_factory=dict)
    value: float = None
    state: str = "RUNNING"
    intermediate_values: dict = field(default_factory=dict)
    user_attrs: dict = field(default_factory=dict)


class InMemoryStorage:
    def __init__(self):
        self._trials = []

    def create(self):
        trial = FrozenTrial(number=len(self._trials))
        self._trials.append(trial)
        return trial.number

    def set_param(self, number, name, value):
        self._trials[number].params[name] = value

    def finish(self, number, value, curve):
        trial = self._trials[number]
        trial.intermediate_values.update(enumerate(curve))
        trial.value = value
        trial.state = "COMPLETE"

    def get_all_trials(self):
        # the caller may do what it likes with the result
        return copy.deepcopy(self._trials)


class TPELikeSampler:
    """Samples around the values of the best trials, or at random in the beginning."""

    def __init__(self, seed, startup=20, gamma=0.1, explore=0.2):
        self.rng = random.Random(seed)
        self.startup = startup
        self.gamma = gamma
        self.explore = explore

    def sample(self, study, name):
        low, high, is_log = SPACE[name]
        done = [t for t in study.trials if t.state == "COMPLETE"]
        if is_log:
            low, high = math.log(low), math.log(high)
        if len(done) < self.startup or self.rng.random() < self.explore:
            x = self.rng.uniform(low, high)
        else:
            done.sort(key=lambda t: t.value)
            good = done[:max(1, int(self.gamma * len(done)))]
            centre = self.rng.choice(good).params[name]
            centre = math.log(centre) if is_log else centre
            x = min(high, max(low, self.rng.gauss(centre, 0.1 * (high - low))))
        return math.exp(x) if is_log else x


class Study:
    def __init__(self, seed):
        self.storage = InMemoryStorage()
        self.sampler = TPELikeSampler(seed)

    @property
    def trials(self):
        return self.storage.get_all_trials()

    @property
    def best_trial(self):
        return min((t for t in self.trials if t.state == "COMPLETE"), key=lambda t: t.value)

    def ask(self):
        number = self.storage.create()
        params = {}
        for name in SPACE:
            params[name] = self.sampler.sample(self, name)
            self.storage.set_param(number, name, params[name])
        return number, params

    def tell(self, number, value, curve):
        self.storage.finish(number, value, curve)


def load_history(study, count, steps=120):
    """The trials of the first study, which ran on another machine."""
    rng = random.Random(1234)
    for _ in range(count):
        number = study.storage.create()
        for name, (low, high, is_log) in SPACE.items():
            x = rng.uniform(math.log(low), math.log(high)) if is_log else rng.uniform(low, high)
            study.storage.set_param(number, name, math.exp(x) if is_log else x)
        final = 0.4 + rng.random()
        study.storage.finish(number, final, [final + 1.0 / (s + 1) for s in range(steps)])
