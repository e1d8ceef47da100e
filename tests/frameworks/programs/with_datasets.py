"""map of datasets with processes, by multiprocess and dill."""

import datasets
from work import work

if __name__ == "__main__":
    data = datasets.Dataset.from_dict({"number": [0, 1]})
    found = data.map(lambda row: {"total": work(row["number"])}, num_proc=2)
    print("result", found["total"][:])
