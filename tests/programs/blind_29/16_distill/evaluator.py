"""Waits for snapshots of the student and evaluates each on the held-out part."""
import logging
import time

import torch

from teacher import Student


def evaluate_snapshots(args, holdout, snapshots):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    student = Student(holdout.shape[1], args.classes).eval()
    previous = None
    while True:
        round_, state = snapshots.recv()
        student.load_state_dict(state)
        began = time.monotonic()
        answers = []
        with torch.inference_mode():
            for part in holdout.split(64):
                for noise in range(args.eval_views):
                    answers.append(student(part + 0.01 * noise).argmax(-1))
        answers = torch.cat(answers)
        changed = float("nan") if previous is None else (answers != previous).float().mean().item()
        previous = answers
        logging.info("round %d: %.1f %% of the answers changed, took %.1f s", round_, 100 * changed,
                     time.monotonic() - began)
        snapshots.send(round_)
