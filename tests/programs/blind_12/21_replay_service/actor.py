import random
import time


class PointMass:
    """Toy control task with eight observations."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.state = [self.rng.uniform(-1, 1) for _ in range(4)]
        self.t = 0
        return tuple(self.state)

    def step(self, action):
        x, y, vx, vy = self.state
        vx += 0.05 * ((action % 3) - 1)
        vy += 0.05 * ((action // 3) - 1)
        self.state = [x + 0.05 * vx, y + 0.05 * vy, vx, vy]
        self.t += 1
        return tuple(self.state), -(x * x + y * y), self.t >= 200


def rollout(rng, steps):
    env = PointMass(rng)
    obs = env.reset()
    for _ in range(steps):
        action = int(rng.random() * 9)
        nxt, reward, done = env.step(action)
        yield obs, action, reward, nxt, done
        obs = env.reset() if done else nxt


def actor_main(index, transitions, args):
    rng = random.Random(args.seed + index + 1)
    chunk, produced, start = [], 0, time.monotonic()
    for transition in rollout(rng, 10**9):
        chunk.append(transition)
        if len(chunk) == args.chunk:
            transitions.put(chunk)
            produced += len(chunk)
            chunk = []
            lead = produced / args.actor_rate - (time.monotonic() - start)
            if lead > 0:
                time.sleep(lead)
