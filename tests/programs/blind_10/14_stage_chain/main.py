"""Three stage video pipeline: decode, augment, fit."""
import argparse
import logging
import multiprocessing as mp

from stages import AugmentStage, DecodeStage, FitStage, setup, stage_main

log = logging.getLogger("chain")


class Chain:
    def __init__(self, clips):
        raw_out, raw_in = mp.Pipe(duplex=False)
        ready_out, ready_in = mp.Pipe(duplex=False)
        self.stages = [
            mp.Process(target=stage_main, args=(FitStage, ready_out), name="fit"),
            mp.Process(target=stage_main, args=(AugmentStage, raw_out, ready_in), name="augment"),
            mp.Process(target=stage_main, args=(DecodeStage, raw_in, clips), name="decode"),
        ]
        self.ends = (raw_out, raw_in, ready_out, ready_in)

    def run(self):
        for stage in self.stages:
            stage.start()
        for end in self.ends:
            end.close()
        for stage in reversed(self.stages):
            stage.join()
            log.info("%s finished", stage.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=50)
    args = parser.parse_args()
    setup()
    Chain(args.clips).run()


if __name__ == "__main__":
    main()
