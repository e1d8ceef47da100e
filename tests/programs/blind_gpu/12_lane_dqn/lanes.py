import math
import random


class Vehicle:
    def __init__(self, rng):
        self.lane, self.position, self.speed = rng.randrange(4), rng.uniform(0, 400), rng.uniform(18, 30)


class LaneEnv:
    """Four lanes, forty vehicles, all simulated in Python."""

    def __init__(self, seed, vehicles=40, substeps=10):
        self.rng = random.Random(seed)
        self.vehicles, self.substeps = vehicles, substeps
        self.reset()

    def reset(self):
        self.cars = [Vehicle(self.rng) for _ in range(self.vehicles)]
        self.ego, self.time = self.cars[0], 0
        return self.observe()

    def gap_ahead(self, car, lane):
        gaps = [(o.position - car.position) % 400 for o in self.cars if o is not car and o.lane == lane]
        return min(gaps, default=400.0)

    def observe(self):
        obs = [self.ego.speed / 30]
        for lane in range(4):
            obs += [self.gap_ahead(self.ego, lane) / 400, float(lane == self.ego.lane)]
        return obs + [0.0] * (12 - len(obs))

    def step(self, action):
        for _ in range(self.substeps):
            for car in self.cars:
                gap = self.gap_ahead(car, car.lane)
                target = 30 if gap > 25 else 12
                car.speed += 0.05 * (target - car.speed) + 0.02 * math.sin(car.position)
                car.position = (car.position + car.speed * 0.1) % 400
        if action == 1:
            self.ego.lane = max(0, self.ego.lane - 1)
        elif action == 2:
            self.ego.lane = min(3, self.ego.lane + 1)
        self.time += 1
        crashed = self.gap_ahead(self.ego, self.ego.lane) < 4
        reward = -5.0 if crashed else self.ego.speed / 30
        return self.observe(), reward, crashed or self.time >= 60
