import argparse
import os
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description="gossip averaging between peers")
    parser.add_argument("--peers", type=int, default=3)
    args, rest = parser.parse_known_args()
    port = free_port()
    peers = [subprocess.Popen([sys.executable, os.path.join(HERE, "peer.py"), str(rank), str(args.peers), str(port)] + rest)
             for rank in range(args.peers)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        while any(p.poll() is None for p in peers):
            if any(p.poll() not in (None, 0) for p in peers):
                sys.exit("a peer failed")
            time.sleep(0.5)
    finally:
        for p in peers:
            if p.poll() is None:
                p.terminate()


if __name__ == "__main__":
    main()
