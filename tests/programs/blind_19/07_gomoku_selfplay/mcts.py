import math

import numpy as np

EPS = 1e-8


class MCTS:
    """Monte Carlo tree search over canonical boards, guided by the policy network."""

    def __init__(self, game, nnet, args):
        self.game = game
        self.nnet = nnet
        self.args = args
        self.Qsa = {}  # Q values of the actions of s
        self.Nsa = {}  # visit counts of the actions of s
        self.Ns = {}   # visits of s
        self.Ps = {}   # policy of s
        self.Es = {}   # game ended for s
        self.Vs = {}   # valid moves of s

    def get_action_prob(self, board, temp=1.0):
        for _ in range(self.args.sims):
            self.search(board, depth=0)
        counts = self.Nsa[self.game.key(board)].copy()
        if temp == 0:
            probs = np.zeros_like(counts)
            probs[int(counts.argmax())] = 1
            return probs
        counts = counts ** (1.0 / temp)
        return counts / counts.sum()

    def search(self, board, depth):
        s = self.game.key(board)
        if s not in self.Es:
            self.Es[s] = self.game.ended(board)
        if self.Es[s] != 0 or depth > self.args.max_depth:
            return -self.Es[s]
        if s not in self.Ps:
            policy, v = self.nnet.predict(board)
            valid = self.game.valid_moves(board)
            policy = policy * valid
            self.Ps[s] = policy / (policy.sum() + EPS)
            self.Vs[s] = valid
            self.Qsa[s] = np.zeros(self.game.actions)
            self.Nsa[s] = np.zeros(self.game.actions)
            self.Ns[s] = 0
            return -v
        u = self.Qsa[s] + self.args.cpuct * self.Ps[s] * math.sqrt(self.Ns[s] + EPS) / (1 + self.Nsa[s])
        u = np.where(self.Vs[s] > 0, u, -np.inf)
        a = int(u.argmax())
        v = self.search(self.game.next_canonical(board, a), depth + 1)
        n = self.Nsa[s][a]
        self.Qsa[s][a] = (n * self.Qsa[s][a] + v) / (n + 1)
        self.Nsa[s][a] += 1
        self.Ns[s] += 1
        return -v
