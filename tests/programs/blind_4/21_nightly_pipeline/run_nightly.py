"""Nightly job: tokenize the corpus, then train on the shards. Every stage is logged through tee."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def stage(name, argv, logdir):
    command = f"{sys.executable} {HERE / argv[0]} {' '.join(argv[1:])} 2>&1 | tee {logdir / (name + '.log')}"
    print(f"== {name}", flush=True)
    subprocess.run(command, shell=True, check=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--shards", type=int, default=6)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightly-") as tmp:
        tmp = pathlib.Path(tmp)
        stage("tokenize", ["tokenize_corpus.py", "--out", str(tmp), "--shards", str(args.shards)], tmp)
        stage("train", ["train_lm.py", "--data", str(tmp), "--shards", str(args.shards)], tmp)
        print("== nightly run complete", flush=True)


if __name__ == "__main__":
    main()
