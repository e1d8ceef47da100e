"""Line-protocol helper that owns the radio; one instance per peripheral.

Commands come in on stdin, answers leave on stdout as ``key=value`` fields.
"""
import argparse
import random
import sys
import time


class Peripheral:
    def __init__(self, addr, notify_after):
        self.addr = addr
        self.rng = random.Random(addr)
        self.notify_after = notify_after
        self.reads = 0
        self.subscribed = False

    def handle(self, line):
        cmd, _, arg = line.partition(" ")
        out = []
        if cmd == "conn":
            out.append("rsp=stat state=conn addr=%s" % self.addr)
        elif cmd == "sub":
            self.subscribed = True
            out.append("rsp=wr hnd=%s" % arg)
        elif cmd == "rd":
            time.sleep(0.12)
            self.reads += 1
            if self.subscribed and self.reads >= self.notify_after and self.reads % 7 == 0:
                out.append("rsp=ntfy hnd=2a val=%d" % self.rng.randrange(100))
            out.append("rsp=rd hnd=%s val=%.2f" % (arg, 20 + self.rng.random() * 5))
        elif cmd == "quit":
            sys.exit(0)
        else:
            out.append("rsp=err code=badcmd")
        return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--addr", required=True)
    p.add_argument("--notify-after", type=int, default=35)
    args = p.parse_args()
    dev = Peripheral(args.addr, args.notify_after)
    for line in sys.stdin:
        for answer in dev.handle(line.strip()):
            sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
