"""A small turn based battle simulator that runs in its own process."""
import random
import signal

MOVES = 4


class Battle:
    def __init__(self, rng, tag):
        self.rng = rng
        self.tag = tag
        self.hp = [100.0, 100.0]
        self.turn = 0
        self.power = [[rng.randint(6, 22) for _ in range(MOVES)] for _ in range(2)]

    def observation(self):
        return [self.hp[0] / 100, self.hp[1] / 100, self.turn / 50] + [p / 22 for p in self.power[0]]

    def play(self, action):
        self.turn += 1
        self.hp[1] -= self.power[0][action] * self.rng.uniform(0.6, 1.1)
        if self.hp[1] > 0:
            self.hp[0] -= self.rng.choice(self.power[1]) * self.rng.uniform(0.5, 1.0)
        return self.hp[0] <= 0 or self.hp[1] <= 0

    def won(self):
        return self.hp[1] <= 0 < self.hp[0]


def run_server(conn, seed, walltime):
    signal.alarm(walltime)
    rng = random.Random(seed)
    count = 0
    while True:
        command, _ = conn.recv()
        if command == "quit":
            return
        if command != "challenge":
            conn.send(("error", f"no battle in progress: {command}"))
            continue
        count += 1
        battle = Battle(rng, f"battle-gen8-{count}")
        conn.send(("request", battle.tag, battle.observation()))
        while True:
            command, value = conn.recv()
            if command == "forfeit":
                conn.send(("ended", battle.tag, False))
                break
            if battle.play(value):
                conn.send(("ended", battle.tag, battle.won()))
                break
            conn.send(("request", battle.tag, battle.observation()))
