import random

import torch
from torch import nn

from lanes import LaneEnv


def q_network(hidden=256):
    return nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))


def collect_loop(seed, pipe):
    """Plays with the CPU copy of the network and returns the transitions asked for."""
    torch.set_num_threads(1)
    env, net, rng = LaneEnv(seed), q_network(), random.Random(seed)
    obs = env.reset()
    while True:
        message = pipe.recv()
        if message is None:
            return
        state, epsilon, count = message
        net.load_state_dict(state)
        transitions = []
        for _ in range(count):
            if rng.random() < epsilon:
                action = rng.randrange(3)
            else:
                with torch.no_grad():
                    action = int(net(torch.tensor(obs)).argmax())
            following, reward, done = env.step(action)
            transitions.append((obs, action, reward, following, float(done)))
            obs = env.reset() if done else following
        pipe.send(transitions)
