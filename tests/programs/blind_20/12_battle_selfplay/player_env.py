"""Gym-like wrapper around a player that is driven by battle server messages."""
import logging
import multiprocessing as mp
import queue
import threading

from battle_server import MOVES, run_server

log = logging.getLogger("player_env")


class EnvPlayer:
    """The battle loop runs in a thread; step and reset exchange data with it by queues."""

    n_actions = MOVES
    n_obs = 3 + MOVES

    def __init__(self, name, seed, walltime):
        self.name = name
        ctx = mp.get_context("spawn")
        self._conn, child = ctx.Pipe()
        self._server = ctx.Process(target=run_server, args=(child, seed, walltime),
                                   name=f"server-{name}", daemon=True)
        self._server.start()
        child.close()
        self._observations = queue.Queue(1)
        self._actions = queue.Queue(1)
        self._challenges = queue.Queue()
        self._last_hp = (1.0, 1.0)
        self.battles = 0
        self.wins = 0
        self._thread = threading.Thread(target=self._play_loop, name=f"play-{name}", daemon=True)
        self._thread.start()

    def _play_loop(self):
        while True:
            self._challenges.get()
            self._conn.send(("challenge", None))
            self._play_battle()

    def _play_battle(self):
        self.battles += 1
        while True:
            kind, tag, value = self._conn.recv()
            if kind == "ended":
                self.wins += int(value)
                self._observations.put((None, value))
                return
            self._observations.put((value, None))
            self._conn.send(("move", self._actions.get()))

    def reset(self):
        self._challenges.put(1)
        obs, _ = self._observations.get()
        self._last_hp = (obs[0], obs[1])
        return obs

    def step(self, action):
        self._actions.put(int(action))
        obs, won = self._observations.get()
        if obs is None:
            reward = 1.0 if won else -1.0
            return [0.0] * self.n_obs, reward, True, {"won": won}
        reward = (self._last_hp[1] - obs[1]) - (self._last_hp[0] - obs[0])
        self._last_hp = (obs[0], obs[1])
        return obs, reward, False, {}

    def win_rate(self):
        return self.wins / max(1, self.battles)
