"""One trainer, one judge that scores its checkpoints, and a standby trainer."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time

from roles import judge_main, setup, standby_main, trainer_main


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=31.0, help="seconds between checkpoints")
    parser.add_argument("--checkpoints", type=int, default=4)
    parser.add_argument("--poll", type=float, default=6.0)
    parser.add_argument("--takeover-after", type=float, default=60.0)
    args = parser.parse_args()
    setup()
    finished = mp.Event()
    heartbeat = mp.Value("d", time.time(), lock=False)
    with tempfile.TemporaryDirectory(prefix="ckpt_") as directory:
        trainer = mp.Process(target=trainer_main, args=(directory, args.every, args.checkpoints, heartbeat), name="trainer")
        judge = mp.Process(target=judge_main, args=(directory, args.poll, finished), name="judge")
        standby = mp.Process(target=standby_main, args=(args.takeover_after, heartbeat, finished), name="standby")
        for process in (trainer, judge, standby):
            process.start()
        trainer.join()
        time.sleep(args.poll)
        finished.set()
        judge.join()
        standby.join()
    logging.info("done")


if __name__ == "__main__":
    main()
