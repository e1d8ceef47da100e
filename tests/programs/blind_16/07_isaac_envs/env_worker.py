import functools
import multiprocessing as mp

import numpy as np

from sim import SimulationApp, StackCubeEnv

_ctx = mp.get_context("fork")


def make_env(index, num_envs, available):
    SimulationApp(headless=True, available=available)
    return StackCubeEnv(num_envs, seed=index)


def _worker(env_fn, action_queue, obs_queue):
    env = env_fn()
    try:
        while True:
            cmd, data = action_queue.get()
            if cmd == "reset":
                obs_queue.put(env.reset())
            elif cmd == "step":
                obs_queue.put(env.step(data))
            elif cmd == "close":
                break
    except KeyboardInterrupt:
        pass


class SubProcEnv:
    """One simulator in a process of its own."""

    def __init__(self, index, env_fn):
        self.action_queue = _ctx.Queue()
        self.obs_queue = _ctx.Queue()
        self.process = _ctx.Process(target=_worker, args=(env_fn, self.action_queue, self.obs_queue),
                                    name=f"EnvWorker-{index}", daemon=True)
        self.process.start()

    def send(self, cmd, data=None):
        self.action_queue.put((cmd, data))

    def receive(self):
        return self.obs_queue.get()

    def close(self):
        self.send("close")
        self.process.join(timeout=5)


class EnvWorkerGroup:
    obs_dim, act_dim = StackCubeEnv.obs_dim, StackCubeEnv.act_dim

    def __init__(self, num_workers, envs_per_worker, memory):
        self.envs_per_worker = envs_per_worker
        self.envs = []
        for i in range(num_workers):
            available = memory - i * SimulationApp.MEMORY
            self.envs.append(SubProcEnv(i, functools.partial(make_env, i, envs_per_worker, available)))

    def reset(self):
        for env in self.envs:
            env.send("reset")
        return np.concatenate([env.receive() for env in self.envs])

    def step(self, actions):
        for i, env in enumerate(self.envs):
            env.send("step", actions[i * self.envs_per_worker:(i + 1) * self.envs_per_worker])
        obs, reward = zip(*(env.receive() for env in self.envs))
        return np.concatenate(obs), np.concatenate(reward)

    def close(self):
        for env in self.envs:
            env.close()
