"""Drone simulator with a real-time clock: the world does not stop while a client thinks."""
import logging
import math
import signal
import time

import numpy as np

log = logging.getLogger("simulator")


class RealTimeClock:
    """Paces the control steps at clock_speed times real time, against an absolute schedule."""

    def __init__(self, step, clock_speed):
        self.period = step / clock_speed
        self.next = time.monotonic() + self.period

    def tick(self):
        delay = self.next - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        self.next += self.period
        return delay >= -self.period


class Drone:
    def __init__(self, seed, dt):
        self.rng = np.random.default_rng(seed)
        self.dt = dt
        self.reset()

    def reset(self):
        self.pos = self.rng.uniform(-2, 2, size=3)
        self.vel = np.zeros(3)
        self.goal = self.rng.uniform(-3, 3, size=3)
        self.time = 0.0
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.goal - self.pos]).astype(np.float32)

    def advance(self, thrust):
        for _ in range(10):
            h = self.dt / 10
            self.vel += h * (2.5 * thrust - 0.4 * self.vel + self.rng.normal(0, 0.02, size=3))
            self.pos += h * self.vel
        self.time += self.dt
        dist = float(np.linalg.norm(self.goal - self.pos))
        return self.observe(), math.exp(-0.3 * dist), dist < 0.2 or self.time > 8.0


def run_vehicle(index, conn, policy_conn, args):
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [vehicle {index}] %(name)s %(message)s")
    signal.alarm(args.walltime)
    drone = Drone(args.seed + index, args.control_step)
    clock = RealTimeClock(args.control_step, args.clock_speed)
    weights = policy_conn.recv()
    rng = np.random.default_rng(1000 + index)
    obs, episode, late, steps = drone.reset(), [], 0, 0
    log.info("flying at %.1f Hz", args.clock_speed / args.control_step)
    while True:
        while policy_conn.poll():
            weights = policy_conn.recv()
        hidden = np.tanh(weights["w1"] @ obs + weights["b1"])
        thrust = np.tanh(weights["w2"] @ hidden + weights["b2"]) + rng.normal(0, 0.2, size=3)
        nxt, reward, done = drone.advance(thrust)
        episode.append((obs, thrust.astype(np.float32), reward))
        obs = nxt
        steps += 1
        if done:
            conn.send((index, episode, {"steps": steps, "late": late}))
            obs, episode = drone.reset(), []
        late += not clock.tick()
