"""The processes of a run: actors, learner, recorder."""
import csv
import logging
import queue
import signal
import time

import numpy as np

from config import ConfigFile


def setup(name):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s", force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return logging.getLogger(name)


class Reloadable:
    """Re-reads the configuration when the supervisor signals a change."""

    def __init__(self, path, log):
        self.file, self.log = ConfigFile(path), log
        self.values = self.file.read()
        self.stale = False
        signal.signal(signal.SIGUSR2, self._mark)

    def _mark(self, signum, frame):
        self.stale = True

    def refresh(self):
        if self.stale:
            self.stale = False
            self.values = self.file.read()
            self.log.info("configuration reloaded: %s", self.values)


def actor(index, config_path, up, ready, weights, episodes, records):
    log = setup(f"actor{index}")
    conf = Reloadable(config_path, log)
    rng = np.random.default_rng(index)
    w = np.zeros((4, 2), dtype=np.float32)
    up.release()
    ready.wait()
    number = 0
    while True:
        conf.refresh()
        try:
            w = weights.get_nowait()
        except queue.Empty:
            pass
        obs, rows, total = rng.normal(size=4).astype(np.float32), [], 0.0
        for _ in range(conf.values["episode_length"]):
            greedy = int((obs @ w).argmax())
            act = int(rng.integers(2)) if rng.random() < conf.values["epsilon"] else greedy
            nxt = 0.9 * obs + 0.1 * rng.normal(size=4).astype(np.float32)
            reward = float(obs[act] - obs[1 - act])
            rows.append(np.concatenate([obs, [act, reward]]).astype(np.float32))
            total += reward
            obs = nxt
            time.sleep(0.002)
        number += 1
        episodes.put(np.stack(rows))
        records.put((time.time(), index, number, total))
        if number % 100 == 0:
            log.info("episode %d return %.2f", number, total)


class LinearQ:
    """Action values as a linear function of the observation."""

    def __init__(self, dim, actions):
        self.weight = np.zeros((dim, actions), dtype=np.float32)

    def fit(self, obs, act, rew, lr):
        rows = np.arange(len(act))
        error = (obs @ self.weight)[rows, act] - rew
        grad = np.zeros_like(self.weight)
        for a in range(self.weight.shape[1]):
            mine = act == a
            grad[:, a] = obs[mine].T @ error[mine] / len(act)
        self.weight -= lr * grad
        return float((error ** 2).mean())


def learner(config_path, up, ready, weights, episodes):
    log = setup("learner")
    conf = Reloadable(config_path, log)
    q = LinearQ(4, 2)
    up.release()
    ready.wait()
    seen = 0
    while True:
        conf.refresh()
        batch = episodes.get()
        loss = q.fit(batch[:, :4], batch[:, 4].astype(int), batch[:, 5], conf.values["lr"])
        seen += 1
        for box in weights:
            try:
                box.put_nowait(q.weight.copy())
            except queue.Full:
                pass
        if seen % 100 == 0:
            log.info("%d episodes learned, loss %.4f", seen, loss)


def recorder(path, up, ready, records):
    log = setup("recorder")
    up.release()
    ready.wait()
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["time", "actor", "episode", "return"])
        count = 0
        while True:
            out.writerow(records.get())
            count += 1
            if count % 200 == 0:
                f.flush()
                log.info("%d episodes on file", count)
