"""Asynchronous environment pool, results are exchanged through queues."""
import logging
import multiprocessing as mp
import random
import time

log = logging.getLogger("envpool")


class PixelEnv:
    """160x210 RGB frames, a little physics."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.t = 0

    def reset(self):
        self.t = 0
        return self.rng.randbytes(210 * 160 * 3)

    def step(self, action):
        time.sleep(self.rng.uniform(0.02, 0.09))
        self.t += 1
        done = self.t >= 200
        return self.rng.randbytes(210 * 160 * 3), float(action == 1), done


def _env_worker(idx, env_fn, cmd_q, result_q):
    env = env_fn()
    while True:
        cmd, data = cmd_q.get()
        if cmd == "shutdown":
            return
        if cmd == "reset":
            result_q.put((idx, env.reset(), 0.0, False))
        else:
            obs, rew, done = env.step(data)
            if done:
                obs = env.reset()
            result_q.put((idx, obs, rew, done))


class AsyncEnvPool:
    def __init__(self, env_fns, exchange="queue"):
        assert exchange == "queue"
        ctx = mp.get_context("fork")
        self.cmd_queues = [ctx.Queue() for _ in env_fns]
        self.result_queues = [ctx.Queue() for _ in env_fns]
        self.workers = []
        for i, fn in enumerate(env_fns):
            p = ctx.Process(target=_env_worker, name=f"env-{i}",
                            args=(i, fn, self.cmd_queues[i], self.result_queues[i]))
            p.start()
            self.workers.append(p)

    def async_reset_send(self):
        for q in self.cmd_queues:
            q.put(("reset", None))

    def async_step_send(self, actions):
        for idx, a in actions.items():
            self.cmd_queues[idx].put(("step", a))

    def recv(self, min_get=1):
        """Return as soon as `min_get` environments have answered."""
        out = []
        while len(out) < min_get:
            for q in self.result_queues:
                if not q.empty():
                    out.append(q.get())
            time.sleep(0.002)
        return out

    def shutdown(self):
        log.info("closing %d environments", len(self.workers))
        for q in self.cmd_queues:
            q.put(("shutdown", None))
        for p in self.workers:
            p.join()
        log.info("all environments closed")
