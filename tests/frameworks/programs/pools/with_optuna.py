"""Trials of optuna in two threads with a DataLoader; `failing`: processes and a locked SQLite."""

import multiprocessing
import sqlite3
import sys
import tempfile
import time

import optuna
import torch

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((4,), float(index))


def objective(trial):
    rate = trial.suggest_float("rate", 0.1, 0.2)
    total = 0.0
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1):
        total += batch.sum().item() * rate
    return total


def quick(trial):
    time.sleep(0.2)
    return trial.suggest_float("rate", 0.1, 0.2)


def trials(url):
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 300}})
    optuna.load_study(study_name="study", storage=storage).optimize(quick, n_trials=1000)


def archive(path):
    """Copies the results, in a transaction that it keeps open for the whole copy."""
    time.sleep(3)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    print("fault", flush=True)
    time.sleep(100)
    database.execute("COMMIT")


if __name__ == "__main__":
    if "failing" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/study.db"
            optuna.create_study(study_name="study", storage=url)
            context = multiprocessing.get_context("spawn")
            children = [context.Process(target=trials, args=(url,)) for _ in range(2)]
            children.append(context.Process(target=archive, args=(f"{folder}/study.db",)))
            for child in children:
                child.start()
            for child in children:
                child.join()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=16, n_jobs=2)
    print("result", len(study.trials), flush=True)
