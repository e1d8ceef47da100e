"""Reacher-like toy task and a vectorised environment over processes."""
import multiprocessing as mp
import time

import numpy as np


class ReacherEnv:
    def __init__(self, seed, height=120, width=160, max_steps=150):
        self.rng = np.random.default_rng(seed)
        self.height, self.width, self.max_steps = height, width, max_steps
        self.background = self.rng.integers(0, 60, (height, width, 3), dtype=np.uint8)

    def reset(self):
        self.pos, self.vel = np.zeros(2), np.zeros(2)
        self.goal = self.rng.uniform(-1, 1, 2)
        self.steps = 0
        return self._obs()

    def _obs(self):
        return np.concatenate([self.pos, self.vel, self.goal]).astype(np.float32)

    def step(self, action):
        time.sleep(0.008)
        self.vel = 0.9 * self.vel + 0.1 * np.clip(action, -1, 1)
        self.pos = np.clip(self.pos + 0.1 * self.vel, -1, 1)
        self.steps += 1
        distance = float(np.linalg.norm(self.pos - self.goal))
        done = distance < 0.03 or self.steps >= self.max_steps
        return self._obs(), -distance, done, {}

    def render(self):
        frame = self.background.copy()
        for point, colour in ((self.pos, (255, 80, 80)), (self.goal, (80, 255, 80))):
            y = int((point[1] + 1) / 2 * (self.height - 5))
            x = int((point[0] + 1) / 2 * (self.width - 5))
            frame[y:y + 5, x:x + 5] = colour
        return frame


def _env_worker(conn, parent_conn, make_env):
    parent_conn.close()
    env = make_env()
    try:
        while True:
            command, data = conn.recv()
            if command == "step":
                obs, reward, done, info = env.step(data)
                if done:
                    info["terminal_observation"] = obs
                    obs = env.reset()
                conn.send((obs, reward, done, info))
            elif command == "reset":
                conn.send(env.reset())
            else:
                break
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        conn.close()


class SubprocVecEnv:
    def __init__(self, makers):
        ctx = mp.get_context("fork")
        self.conns, self.procs = [], []
        for i, maker in enumerate(makers):
            parent, child = ctx.Pipe()
            proc = ctx.Process(target=_env_worker, args=(child, parent, maker), name=f"env-{i}", daemon=True)
            proc.start()
            child.close()
            self.conns.append(parent)
            self.procs.append(proc)

    def reset(self):
        for c in self.conns:
            c.send(("reset", None))
        return np.stack([c.recv() for c in self.conns])

    def step(self, actions):
        for c, a in zip(self.conns, actions):
            c.send(("step", a))
        obs, rewards, dones, infos = zip(*(c.recv() for c in self.conns))
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones), infos

    def close(self):
        for c in self.conns:
            c.send(("close", None))
        for p in self.procs:
            p.join()
