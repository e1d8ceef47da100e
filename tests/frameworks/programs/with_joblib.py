"""joblib's default backend."""

from joblib import Parallel, delayed
from work import work

if __name__ == "__main__":
    print("result", Parallel(n_jobs=2)(delayed(work)(number) for number in range(4)))
