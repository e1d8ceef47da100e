import collections
import logging
import math
import threading

log = logging.getLogger("stats")


class EpisodeStats:
    """Novelty and spread figures of the last episodes, for the dashboard."""

    def __init__(self, keep=64, min_episodes=6, bins=12):
        self.episodes = collections.deque(maxlen=keep)
        self.min_episodes = min_episodes
        self.bins = bins
        self.lock = threading.Lock()
        self.latest = {}
        self.thread = threading.Thread(target=self._refresh, name="episode-stats", daemon=True)
        self.ready = threading.Event()

    def start(self):
        self.thread.start()

    def add(self, observations, total):
        with self.lock:
            self.episodes.append(([tuple(float(v) for v in o) for o in observations], total))
        if len(self.episodes) >= self.min_episodes:
            self.ready.set()

    def _cell(self, obs):
        return tuple(int(max(-6.0, min(6.0, v)) * self.bins) for v in obs)

    def _refresh(self):
        self.ready.wait()
        round_no = 0
        while True:
            with self.lock:
                episodes = list(self.episodes)
            visits = collections.Counter()
            for observations, _ in episodes:
                for obs in observations:
                    visits[self._cell(obs)] += 1
            total = sum(visits.values())
            entropy = -sum(n / total * math.log(n / total) for n in visits.values())
            returns = sorted(r for _, r in episodes)
            self.latest = {
                "cells": len(visits),
                "entropy": entropy,
                "median_return": returns[len(returns) // 2],
            }
            round_no += 1
            if round_no % 50 == 1:
                log.info("episodes %d %s", len(episodes), self.latest)
