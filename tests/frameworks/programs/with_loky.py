"""loky's reusable executor."""

from loky import get_reusable_executor
from work import work

if __name__ == "__main__":
    print("result", list(get_reusable_executor(max_workers=2).map(work, range(4))))
