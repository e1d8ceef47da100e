import argparse
import json
import socket
import sys


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--problem", type=int)
    p.add_argument("--solution")
    p.add_argument("--port", type=int)
    args = p.parse_args()
    with socket.create_connection(("127.0.0.1", args.port)) as conn:
        conn.sendall(f"{args.problem}\n".encode())
        cases = json.loads(conn.makefile().readline())
    scope = {}
    exec(args.solution, scope)
    passed = sum(scope["solve"](c["n"], args.problem) == c["expected"] for c in cases)
    print(f"{passed}/{len(cases)}")
    sys.exit(0 if passed == len(cases) else 1)


if __name__ == "__main__":
    main()
