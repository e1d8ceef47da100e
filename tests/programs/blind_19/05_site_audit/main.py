"""Crawls a site with a few fetchers and audits the pages for SEO problems."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import re
import threading
import time

from issues import detector_main, exit_with_parent

log = logging.getLogger("crawl")

WORDS = """river garden winter account shipping return policy product leather cotton summer price offer size colour
delivery customer review guide store order payment warranty material handle travel outdoor kitchen family design
quality service contact member season light heavy weekend morning simple modern classic natural""".split()


class Site:
    """Stands in for the shop under audit: renders a page of the catalogue from its number."""

    def __init__(self, size, latency):
        self.size, self.latency = size, latency

    def get(self, number):
        rng = random.Random(number)
        time.sleep(self.latency * rng.uniform(0.5, 1.5))
        title = " ".join(rng.choices(WORDS, k=rng.randint(2, 9))).title()
        body = " ".join(rng.choices(WORDS, k=70))
        description = "" if rng.random() < 0.1 else body[:150]
        links = [rng.randrange(self.size) for _ in range(6)]
        anchors = "".join('<a href="/p/%d">%s</a>' % (n, WORDS[n % len(WORDS)]) for n in links)
        return ('<html><head><title>%s</title><meta name="description" content="%s"></head>'
                "<body><main>%s</main>%s</body></html>" % (title, description, body, anchors))


class Fetcher(mp.Process):
    def __init__(self, number, frontier, discovered, pages, site):
        super().__init__(name="fetcher-%d" % number, daemon=True)
        self.frontier, self.discovered, self.pages, self.site = frontier, discovered, pages, site

    def parse(self, url, html):
        return {
            "url": url,
            "title": re.search("<title>(.*?)</title>", html).group(1),
            "description": re.search('content="(.*?)"', html).group(1),
            "text": re.search("<main>(.*?)</main>", html).group(1),
        }

    def run(self):
        exit_with_parent()
        while True:
            number = self.frontier.get()
            if number is None:
                return
            html = self.site.get(number)
            self.pages.put(self.parse("/p/%d" % number, html))
            self.discovered.put([int(n) for n in re.findall(r'href="/p/(\d+)"', html)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--site-size", type=int, default=20000)
    parser.add_argument("--max-pages", type=int, default=6000)
    parser.add_argument("--fetchers", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--threshold", type=float, default=0.85)
    parser.add_argument("--crawl-limit", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    frontier, discovered = mp.Queue(), mp.Queue()
    pages, summary = mp.Queue(maxsize=50), mp.Queue()
    detector = mp.Process(target=detector_main, args=(pages, summary, args.threshold), name="detector", daemon=True)
    fetchers = [Fetcher(i, frontier, discovered, pages, Site(args.site_size, args.latency)) for i in range(args.fetchers)]
    for p in [detector] + fetchers:
        p.start()

    def limit():
        log.info("crawl limit reached")
        for p in mp.active_children():
            p.kill()
        os._exit(0)

    timer = threading.Timer(args.crawl_limit, limit)
    timer.daemon = True
    timer.start()

    seen, fetched, queued = {0}, 0, 1
    frontier.put(0)
    last = time.time()
    while fetched < queued:
        links = discovered.get()
        fetched += 1
        for n in links:
            if n not in seen and queued < args.max_pages:
                seen.add(n)
                queued += 1
                frontier.put(n)
        if time.time() - last > 10:
            last = time.time()
            log.info("%d fetched, %d waiting in the frontier", fetched, queued - fetched)
    for _ in fetchers:
        frontier.put(None)
    pages.put(None)
    log.info("no more URLs to crawl; audit: %s", summary.get())


if __name__ == "__main__":
    main()
