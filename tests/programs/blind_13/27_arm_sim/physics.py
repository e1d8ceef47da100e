"""Physics server with a command block in shared memory."""
import os
import time

import numpy as np
import torch

IDLE, RESET, STEP, SHUTDOWN = range(4)


class SharedBlock:
    def __init__(self, ctx, joints):
        self.joints = joints
        self.command = ctx.RawValue("i", IDLE)
        self.raw_action = ctx.RawArray("d", joints)
        self.raw_state = ctx.RawArray("d", 3 * joints + 1)

    def arrays(self):
        return np.frombuffer(self.raw_action), np.frombuffer(self.raw_state)


def physics_server(block):
    action, state = block.arrays()
    rng = np.random.default_rng(0)
    n = block.joints
    while True:
        command = block.command.value
        if command == IDLE:
            os.sched_yield()
            continue
        if command == SHUTDOWN:
            return
        if command == RESET:
            state[:n] = rng.uniform(-1, 1, n)
            state[n:2 * n] = 0
            state[2 * n:3 * n] = rng.uniform(-1, 1, n)
        else:
            for _ in range(4):
                state[n:2 * n] += 0.004 * (np.clip(action, -2, 2) - 0.3 * state[n:2 * n])
                state[:n] += 0.004 * state[n:2 * n]
        state[3 * n] = -np.square(state[:n] - state[2 * n:3 * n]).mean()
        block.command.value = IDLE


class PhysicsClient:
    def __init__(self, block):
        self.block = block
        self.action, self.state = block.arrays()

    def call(self, command):
        self.block.command.value = command
        while self.block.command.value != IDLE:
            time.sleep(0.0002)
        return torch.tensor(self.state[:-1], dtype=torch.float32), float(self.state[-1])

    def reset(self):
        return self.call(RESET)[0]

    def step(self, action):
        self.action[:] = action.numpy()
        return self.call(STEP)

    def shutdown(self):
        self.block.command.value = SHUTDOWN
