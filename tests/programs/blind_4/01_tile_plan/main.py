"""Export a slippy-map pyramid for one survey area."""
import argparse
import logging
import time

log = logging.getLogger("export")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--area", default="wellington")
    p.add_argument("--format", choices=["png", "webp"], default="webp")
    p.add_argument("--dry-run", action="store_true")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    log.info("area %s, format %s", args.area, args.format)

    from tiling import render

    started = time.monotonic()
    written = render.render_area(args.area, args.format, dry_run=args.dry_run)
    log.info("%d tiles written in %.1f s", written, time.monotonic() - started)


if __name__ == "__main__":
    main()
