import time

import numpy as np

ARCHIVED = {23}


def commits_query(store, repo):
    """Pulls the commit log of one repository into the store."""
    rng = np.random.default_rng(repo)
    time.sleep(0.15)
    if repo in ARCHIVED:
        return 0
    rows = np.sort(rng.integers(0, 365 * 24 * 3600, int(rng.integers(2000, 9000))))
    store.put("commits", repo, rows)
    return len(rows)


def commits_over_time(store, repo):
    rows = store.wait_for("commits", repo)
    weekly = np.bincount(rows // (7 * 24 * 3600), minlength=53)
    time.sleep(0.3)
    return {"graph": "commits_over_time", "repo": repo, "peak_week": int(weekly.argmax())}


def contributor_gaps(store, repo):
    rows = store.wait_for("commits", repo)
    gaps = np.diff(rows)
    time.sleep(0.3)
    return {"graph": "contributor_gaps", "repo": repo, "median_gap": float(np.median(gaps))}


REGISTRY = {f.__name__: f for f in (commits_query, commits_over_time, contributor_gaps)}
