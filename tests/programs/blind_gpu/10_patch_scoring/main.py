import argparse
import csv
import logging
import multiprocessing
import sys
import time

import torch

from scoring import PatchScorer, cut_patches, init_scorer, read_slide, score_slide

log = logging.getLogger("slides")


def parse_args():
    ap = argparse.ArgumentParser(description="Find the most conspicuous patches of slides")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--slides", type=int, default=3000)
    ap.add_argument("--calibration-slides", type=int, default=45)
    ap.add_argument("--output", default="patches.csv")
    return ap.parse_args()


def calibrate(model, device, slides):
    """A short fit against a brightness target, so that scores are comparable."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for slide_id in range(slides):
        time.sleep(0.08)
        patches = torch.from_numpy(cut_patches(read_slide(100_000 + slide_id))).permute(0, 3, 1, 2).to(device)
        loss = (model(patches) - patches.mean(dim=(1, 2, 3))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if slide_id % 15 == 0:
            log.info("calibration %d/%d loss %.4f", slide_id, slides, loss.item())
    return {k: v.cpu() for k, v in model.state_dict().items()}


def score_all(state, args):
    started, done = time.time(), 0
    with multiprocessing.Pool(args.workers, initializer=init_scorer, initargs=(state, args.device)) as pool:
        with open(args.output, "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["slide", "patch", "score"])
            for slide_id, patches, scores in pool.imap_unordered(score_slide, range(args.slides), chunksize=4):
                writer.writerows([slide_id, p, f"{s:.5f}"] for p, s in zip(patches, scores))
                done += 1
                if done % 50 == 0:
                    log.info("%d slides, %.1f slides/s", done, done / (time.time() - started))
    return done


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    state = calibrate(PatchScorer().to(args.device), args.device, args.calibration_slides)
    log.info("scoring %d slides with %d workers", args.slides, args.workers)
    log.info("%d slides scored", score_all(state, args))


if __name__ == "__main__":
    main()
