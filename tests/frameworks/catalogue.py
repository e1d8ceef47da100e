"""The frameworks: their programs, and what is wrong with the failing ones.

What a diagnosis has to say about a failing program was written down before mpwatch saw it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent / "programs"
LAUNCH_TWO = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517")
ACCELERATE_TWO = (
    # `--multi_gpu` is how accelerate 1.15 starts several ranks; the program keeps to the cpu.
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
    "--main_process_port", "29518",
)  # fmt: skip


class Failure(NamedTuple):
    """What goes wrong in a program when its last argument is `failing`."""

    truth: str
    thread: str
    """A public thread about such a failure."""
    says: tuple[str, ...]
    """Expressions that the first finding must contain, each of them, in any of its fields."""


class Framework(NamedTuple):
    """A program of a framework."""

    name: str
    package: str
    """What has to be installed, by the name of its distribution."""
    arguments: tuple[str, ...]
    """Arguments of the interpreter; `{}` is the folder of the programs."""
    failure: Failure | None = None
    limit_s: float = 240.0

    def command(self, *, fails: bool = False) -> list[str]:
        """Arguments of the interpreter for the healthy program, or for the failing one."""
        arguments = [part.format(PROGRAMS) for part in self.arguments]
        return [*arguments, "failing"] if fails else arguments


def at(program: str, text: str) -> str:
    """An expression for the line of a program that has this text: `train\\.py:12\\b`.

    Raises:
        ValueError: There is not exactly one such line.
    """
    path = PROGRAMS / program
    lines = path.read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return rf"{re.escape(path.name)}:{number}\b"


def named(framework_name: str) -> Framework:
    """The framework of that name.

    Raises:
        KeyError: There is none.
    """
    return {framework.name: framework for framework in FRAMEWORKS}[framework_name]


def says_all(text: str, failure: Failure) -> bool:
    """Whether the text of a finding contains all that is expected."""
    return all(re.search(expression, text, re.IGNORECASE) for expression in failure.says)


FRAMEWORKS = (
    Framework(
        "torch.multiprocessing.spawn",
        "torch",
        ("{}/ranks/mp_spawn.py",),
        Failure(
            "rank 1 has left the loop and sleeps in evaluate, rank 0 waits in all_reduce",
            "pytorch/pytorch#20630",
            (r"rank 1", r"rank 0", r"evaluate"),
        ),
    ),
    Framework(
        "torchrun",
        "torch",
        (*LAUNCH_TWO, "{}/ranks/ddp.py"),
        Failure(
            "rank 0 waits at the barrier of its checkpoint, rank 1 is in the next backward",
            "pytorch/pytorch#20630",
            (
                r"rank 0",
                r"rank 1",
                r"barrier|save",
                r"backward|" + at("ranks/ddp.py", "loss.backward()"),
            ),
        ),
    ),
    Framework(
        "accelerate launch",
        "accelerate",
        (*ACCELERATE_TWO, "{}/ranks/with_accelerate.py"),
        Failure(
            "rank 0 alone calls gather_object, rank 1 is in the next backward",
            "huggingface/accelerate#2733",
            (
                r"rank 0",
                r"rank 1",
                r"gather_object|" + at("ranks/with_accelerate.py", "gather_object(["),
            ),
        ),
    ),
    Framework(
        "Lightning",
        "lightning",
        ("{}/ranks/with_lightning.py", "auto"),
        Failure(
            "the one worker of the loader decodes 0.4 s for each batch, the training waits for it",
            "Lightning-AI/pytorch-lightning#3139",
            (r"worker", r"decode|starv|wait"),
        ),
    ),
    Framework(
        "Lightning ddp",
        "lightning",
        ("{}/ranks/with_lightning.py", "ddp"),
        Failure(
            "rank 0 alone reduces in self.log(sync_dist=True), rank 1 is in its backward",
            "Lightning-AI/pytorch-lightning#19604",
            (
                r"rank 0",
                r"rank 1",
                r"\blog\b|" + at("ranks/with_lightning.py", 'self.log("loss"'),
                r"backward",
            ),
        ),
    ),
    Framework(
        "Lightning ddp_spawn",
        "lightning",
        ("{}/ranks/with_lightning.py", "ddp_spawn"),
        Failure(
            "rank 0 alone waits at the barrier of save_checkpoint, rank 1 is in its backward",
            "Lightning-AI/pytorch-lightning#19604",
            (
                r"rank 0",
                r"rank 1",
                r"save_checkpoint|" + at("ranks/with_lightning.py", "trainer.save_checkpoint("),
                r"backward",
            ),
        ),
    ),
    Framework(
        "transformers Trainer",
        "transformers",
        (*LAUNCH_TWO, "{}/ranks/with_transformers.py"),
        Failure(
            "rank 0 alone evaluates and gathers, rank 1 is in its next backward",
            "huggingface/transformers#31532",
            (
                r"rank 0",
                r"rank 1",
                r"evaluat|gather|" + at("ranks/with_transformers.py", "trainer.evaluate()"),
                r"backward",
            ),
        ),
    ),
    Framework(
        "joblib",
        "joblib",
        ("{}/pools/with_joblib.py",),
        Failure(
            "forked pool workers wait for threads of OpenMP that only the main process has",
            "joblib/joblib#812",
            (r"OpenMP", r"fork", r"norm"),
        ),
    ),
    Framework(
        "loky",
        "loky",
        ("{}/pools/with_loky.py",),
        Failure(
            "a worker is killed by SIGKILL again and again",
            "joblib/joblib#812",
            (r"SIGKILL|killed", r"worker"),
        ),
    ),
    Framework("ProcessPoolExecutor", "torch", ("{}/pools/with_executor.py",)),
    Framework(
        "datasets.map",
        "datasets",
        ("{}/pools/with_datasets.py",),
        Failure(
            "forked pool workers wait for threads of OpenMP that only the main process has",
            "huggingface/datasets#5094",
            (r"OpenMP", r"fork", r"embed"),
        ),
    ),
    Framework(
        "sentence-transformers",
        "sentence-transformers",
        ("{}/pools/with_sentence_transformers.py",),
        Failure(
            "each failed batch leaves a process of start_multi_process_pool",
            "langchain-ai/langchain#40506",
            (r"processes|children", r"start_multi_process_pool|with_sentence_transformers"),
        ),
    ),
    Framework(
        "optuna",
        "optuna",
        ("{}/pools/with_optuna.py",),
        Failure(
            "archive sleeps in a transaction, the processes of the trials wait for the database",
            "optuna/optuna#820",
            (r"archive", r"study\.db", r"lock"),
        ),
    ),
    Framework(
        "torch.compile",
        "torch",
        ("{}/pools/with_compile.py",),
        Failure(
            "the compiler of one rank does not end, and the other rank waits for inductor's lock",
            "pytorch/pytorch#121197",
            (r"rank [01]", r"g\+\+|sleep|compiler|lock"),
        ),
    ),
    Framework(
        "gymnasium AsyncVectorEnv",
        "gymnasium",
        ("{}/environments/with_gymnasium.py",),
        Failure(
            "environment 1 waits in step for an answer of its simulator, main waits for it",
            "openai/gym#1544",
            (r"worker\S*[ -]1\b", r"step|" + at("environments/with_gymnasium.py", "recv(")),
        ),
    ),
    Framework(
        "Stable-Baselines3",
        "stable-baselines3",
        ("{}/environments/with_sb3.py",),
        Failure(
            "environment 1 never leaves the loop of its reset, main waits for it",
            "DLR-RM/stable-baselines3#1814",
            (r"worker\S*[ -]1\b", r"reset|" + at("environments/with_sb3.py", "self.env.reset()")),
        ),
    ),
    Framework(
        "torchrl",
        "torchrl",
        ("{}/environments/with_torchrl.py",),
        Failure(
            "collector process 1 waits in _step for its server, main polls for its batch",
            "pytorch/rl#171",
            (
                r"process 1|collector\S* 1|_main\S* 1",
                r"_step|" + at("environments/with_torchrl.py", "recv("),
            ),
        ),
    ),
    Framework(
        "sample-factory",
        "sample-factory",
        ("{}/environments/with_sample_factory.py",),
        Failure(
            "the rollout worker was killed by SIGKILL and is not started again",
            "alex-petrenko/sample-factory#316",
            (r"SIGKILL|killed", r"rollout"),
        ),
    ),
    Framework(
        "PyG DataLoader",
        "torch-geometric",
        ("{}/loaders/with_pyg.py",),
        Failure(
            "main keeps every batch, so its descriptors run out",
            "pytorch/pytorch#973",
            (r"main", r"descriptors"),
        ),
    ),
    Framework(
        "webdataset",
        "webdataset",
        (*LAUNCH_TWO, "{}/loaders/with_webdataset.py"),
        Failure(
            "rank 1 has fewer shards and waits at the barrier, rank 0 is in backward",
            "webdataset/webdataset#188",
            (r"rank 0", r"rank 1", r"backward", r"barrier"),
        ),
    ),
    Framework(
        "torchdata",
        "torchdata",
        ("{}/loaders/with_torchdata.py",),
        Failure(
            "a process of ParallelMapper was killed, main waits for its item for ever",
            "meta-pytorch/data#1494",
            (r"SIGKILL|killed", r"_apply_udf|worker"),
        ),
    ),
    Framework(
        "MONAI ThreadDataLoader",
        "monai",
        ("{}/loaders/with_monai.py",),
        Failure(
            "a worker is killed each epoch, the thread of the loader ends, the epoch is cut short",
            "Project-MONAI/MONAI#701",
            (r"SIGKILL|killed", r"worker"),
        ),
    ),
    Framework(
        "Ray actors",
        "ray",
        ("{}/pools/with_ray.py",),
        Failure(
            "each actor waits in evaluate for a step of the other",
            "ray-project/ray#3307",
            (r"Trainer", r"evaluate"),
        ),
    ),
)
