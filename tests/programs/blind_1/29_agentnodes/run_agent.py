import argparse
import multiprocessing as mp

import nodes


class Program:
    """A minimal multi-process launcher."""

    def __init__(self):
        self.nodes = []

    def add_node(self, label, fn, *args):
        self.nodes.append(mp.Process(target=fn, args=args, name=label))

    def launch(self):
        for n in self.nodes:
            n.start()
        for n in self.nodes:
            n.join()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    args = ap.parse_args()
    adder, weights, counter = mp.Queue(maxsize=400), mp.Array("d", 8), mp.Value("i", 0)
    prog = Program()
    for i in range(args.actors):
        prog.add_node(f"actor-{i}", nodes.actor, i, adder, weights, counter)
    prog.add_node("evaluator", nodes.evaluator, weights, counter)
    prog.add_node("learner", nodes.learner, adder, weights, counter)
    prog.launch()


if __name__ == "__main__":
    main()
