import argparse
import csv
import logging
import multiprocessing as mp
import os
import tempfile
import time

from beamcon import worker

log = logging.getLogger("beamcon_2D")


def parse_args():
    p = argparse.ArgumentParser(description="smooth a survey's images to a common resolution")
    p.add_argument("--images", type=int, default=800)
    p.add_argument("--npix", type=int, default=512)
    p.add_argument("--beam", type=float, default=15.0, help="common beam in arcsec")
    p.add_argument("--n-cores", type=int, default=2)
    p.add_argument("--log-file", default="beamlog.csv", help="write old and new beams to this file")
    p.add_argument("--rate", type=float, default=5.0, help="images per second that the archive delivers")
    p.add_argument("--outdir", default=None)
    return p.parse_args()


def staged_files(args, outdir):
    """Hand the images over as they are staged from tape."""
    start = time.time()
    for n in range(args.images):
        delay = start + n / args.rate - time.time()
        if delay > 0:
            time.sleep(delay)
        yield f"RACS_{n // 36:04d}/beam{n % 36:02d}.fits", outdir, args.npix, args.beam / 3600


def write_log(path, results):
    with open(path, "w", newline="") as fh:
        out = csv.writer(fh)
        out.writerow(["filename", "old_beam", "new_beam", "factor"])
        for d in results:
            out.writerow([d["filename"], d["old_beam"] * 3600, d["new_beam"] * 3600, d["factor"]])


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    outdir = args.outdir or tempfile.mkdtemp(prefix="racs_")
    log.info("convolving %d images of %d pix to %.1f arcsec with %d cores",
             args.images, args.npix, args.beam, args.n_cores)
    start = time.time()
    results = []
    with mp.Pool(args.n_cores) as pool:
        for datadict in pool.imap_unordered(worker, staged_files(args, outdir)):
            results.append(datadict)
            if len(results) % 25 == 0:
                log.info("%d/%d images smoothed, last %s (%.1f/s)", len(results), args.images,
                         datadict["outfile"], len(results) / (time.time() - start))
    write_log(os.path.join(outdir, args.log_file), results)
    log.info("beam log written to %s", os.path.join(outdir, args.log_file))


if __name__ == "__main__":
    main()
