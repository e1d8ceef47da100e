"""concurrent.futures, with forked workers."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from work import work

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        print("result", list(executor.map(work, range(4))))
