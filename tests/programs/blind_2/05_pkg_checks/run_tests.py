import argparse
import hashlib
import sys


def run_case(package, i):
    h = hashlib.md5(f"{package}-{i}".encode())
    for _ in range(2000):
        h.update(h.digest())
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("package")
    p.add_argument("--cases", type=int, default=100)
    args = p.parse_args()
    for i in range(args.cases):
        got = run_case(args.package, i)
        print(f"{args.package}::case_{i:05d} ok baseline={got} output={got[::-1]}")
        if i % 97 == 0:
            print(f"deprecated analyser used in case {i}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
