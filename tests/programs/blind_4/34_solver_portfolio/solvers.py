import random
import time


def cost(order, dist):
    return sum(dist[a][b] for a, b in zip(order, order[1:] + order[:1]))


def anneal(seed, dist, budget, temperature):
    rng = random.Random(seed)
    order = list(range(len(dist)))
    best, until = cost(order, dist), time.monotonic() + budget
    while time.monotonic() < until:
        i, j = sorted(rng.sample(range(len(order)), 2))
        new = order[:i] + order[i:j][::-1] + order[j:]
        c = cost(new, dist)
        if c < best or rng.random() < temperature:
            order, best = new, min(best, c)
        time.sleep(0.002)
    return best


def solve(name, instance, dist, budget, temperature, answers):
    answers.put((name, anneal(f"{name}/{instance}", dist, budget, temperature)))
