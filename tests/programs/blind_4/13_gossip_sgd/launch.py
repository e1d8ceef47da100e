import argparse
import pathlib
import socket
import subprocess
import sys


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hidden", type=int, default=24000)
    p.add_argument("--rounds", type=int, default=50)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = pathlib.Path(__file__).with_name("node.py")
    nodes = [subprocess.Popen([sys.executable, str(script), "--rank", str(r), "--port", str(port),
                               "--hidden", str(args.hidden), "--rounds", str(args.rounds)]) for r in range(2)]
    sys.exit(max(node.wait() for node in nodes))


if __name__ == "__main__":
    main()
