import multiprocessing as mp

import numpy as np

from envs import env_main


class ProcessVecEnv:
    def __init__(self, substeps):
        pipes = [mp.Pipe() for _ in substeps]
        self.remotes = [a for a, _ in pipes]
        self.processes = []
        for number, ((_, child), count) in enumerate(zip(pipes, substeps)):
            process = mp.Process(target=env_main, args=(child, number, count), name=f"env-{number}", daemon=True)
            process.start()
            child.close()
            self.processes.append(process)

    def reset(self):
        for remote in self.remotes:
            remote.send(("reset", None))
        return np.stack([remote.recv() for remote in self.remotes])

    def step(self, actions):
        for remote, action in zip(self.remotes, actions):
            remote.send(("step", int(action)))
        obs, rewards, dones = zip(*(remote.recv() for remote in self.remotes))
        return np.stack(obs), np.asarray(rewards, np.float32), np.asarray(dones)

    def close(self):
        for remote in self.remotes:
            remote.send(("close", None))
        for process in self.processes:
            process.join()
