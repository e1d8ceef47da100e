"""Maintenance jobs of the archive."""
import logging
import time

log = logging.getLogger("jobs")


def autosync_job(archive, interval, per_round=25):
    """Pull new samples into each suite and publish it again."""
    number = 100000
    while True:
        for suite in archive.suites:
            with archive.publish_locks[suite]:
                for _ in range(per_round):
                    archive.add(suite, number)
                    number += 1
                time.sleep(0.15)
                with archive.expire_lock:
                    archive.publish(suite)
        log.info("synced up to sample %d", number)
        time.sleep(interval)


def expire_job(archive, interval, keep):
    """Drop the oldest samples of each suite."""
    while True:
        time.sleep(interval)
        with archive.expire_lock:
            dropped = 0
            for suite in reversed(archive.suites):
                with archive.publish_locks[suite]:
                    for name in archive.names(suite)[:-keep]:
                        (archive.root / suite / name).unlink()
                        dropped += 1
                    archive.publish(suite)
                time.sleep(0.2)
        log.info("expired %d samples", dropped)
