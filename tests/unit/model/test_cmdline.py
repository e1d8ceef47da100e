from __future__ import annotations

import pytest

from mpwatch.model.cmdline import (
    command_words,
    has_x_option,
    isolating_option,
    job_program,
    job_words,
    python_program,
)


@pytest.mark.parametrize(
    ("line", "kind", "text", "name"),
    [
        ("python train.py --lr 0.1", "script", "train.py", "train.py"),
        ("python -u /home/u/train.py -m x", "script", "/home/u/train.py", "train.py"),
        ("python -X dev -W always train.py", "script", "train.py", "train.py"),
        ("python -Xdev -Wignore -bb train.py", "script", "train.py", "train.py"),
        ("python -m pkg.train --x", "module", "pkg.train", "-m pkg.train"),
        ("python -um pkg.train", "module", "pkg.train", "-m pkg.train"),
        ("python -Bc print(1)", "code", "print(1)", "-c"),
        ("python -X dev -c code(6)", "code", "code(6)", "-c"),
        ("python --check-hash-based-pycs never t.py", "script", "t.py", "t.py"),
        ("python /x/mpwatch/hook/run.py train.py -m", "script", "train.py", "train.py"),
        ("python /x/mpwatch/hook/run.py -m pkg.train", "module", "pkg.train", "-m pkg.train"),
        ("python -", "script", "-", "-"),
        ("python", "none", "", ""),
        ("python -m", "module", "", "-m "),
        ("", "none", "", ""),
    ],
)
def test_the_program_is_found_after_the_options_of_the_interpreter(
    line: str, kind: str, text: str, name: str
) -> None:
    program = python_program(line.split())

    assert (program.kind, program.text, program.name) == (kind, text, name)


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("python -I x.py", "-I"),
        ("python -sE x.py", "-E"),
        ("python -X dev -Sm pdb", "-S"),
        ("python -u -W error -B -Im pip", "-I"),
        ("python -X importtime x.py -I", ""),
        ("python -mIES", ""),
        ("python -cI", ""),
        ("python -u -m torch.distributed.run -E", ""),
        ("python - -E", ""),
        ("python", ""),
    ],
)
def test_the_option_that_makes_python_ignore_its_environment_is_found(
    line: str, option: str
) -> None:
    assert isolating_option(line.split()) == option


@pytest.mark.parametrize(
    ("line", "is_given"),
    [
        ("python -X faulthandler train.py", True),
        ("python -Xfaulthandler train.py", True),
        ("python -BX faulthandler train.py", True),
        ("python -uBXfaulthandler=1 train.py", True),
        ("python -W error -X dev -X faulthandler=1 train.py", True),
        ("python --check-hash-based-pycs never -X faulthandler -c pass", True),
        ("python -X fault_handler train.py", False),
        ("python -W faulthandler train.py", False),
        ("python -c pass -X faulthandler", False),
        ("python -m pkg -X faulthandler", False),
        ("python -- train.py -X faulthandler", False),
        ("python train.py -X faulthandler", False),
        ("python -X", False),
        ("python", False),
        ("", False),
    ],
)
def test_an_implementation_option_is_found_as_the_interpreter_finds_it(
    line: str, is_given: bool
) -> None:
    assert has_x_option(line.split(), ("faulthandler",)) == is_given


def test_a_narrow_column_shows_the_command_without_the_folder_of_the_interpreter() -> None:
    assert (
        command_words(("/opt/venv/bin/python", "train.py", "--lr", "1")) == "python train.py --lr 1"
    )
    assert command_words(()) == ""


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        (
            "python -m torch.distributed.run --nproc_per_node 4 /home/u/train.py --lr 1",
            "train.py",
            "train.py --lr 1, by torch.distributed.run",
        ),
        (
            "python /x/bin/torchrun --standalone --nproc-per-node=2 train.py",
            "train.py",
            "train.py, by torchrun",
        ),
        (
            "python /x/mpwatch/hook/run.py /x/bin/torchrun --nnodes 1 -m pkg.train --lr 1",
            "-m pkg.train",
            "-m pkg.train --lr 1, by torchrun",
        ),
        (
            "python /x/bin/accelerate launch --multi_gpu --num_processes 2 train.py",
            "train.py",
            "train.py, by accelerate",
        ),
        (
            "python /x/bin/deepspeed --num_gpus 2 train.py --deepspeed",
            "train.py",
            "train.py --deepspeed, by deepspeed",
        ),
        (
            "python -u -m deepspeed.launcher.launch --world_info=e30= --master_port=29500 train.py",
            "train.py",
            "train.py, by deepspeed.launcher.launch",
        ),
        ("torchrun --an-unknown-switch train.py", "train.py", "train.py, by torchrun"),
        ("python -m torch.distributed.run --help", "-m torch.distributed.run", ""),
        ("python /x/bin/torchrun", "torchrun", ""),
        ("python train.py --launcher torchrun x.py", "train.py", ""),
        ("python -c pass", "-c", ""),
        ("", "", ""),
    ],
)
def test_a_job_below_a_launcher_has_the_name_of_the_program_that_the_user_wrote(
    line: str, name: str, words: str
) -> None:
    cmdline = line.split()

    assert job_program(cmdline).name == name
    assert job_words(cmdline) == (words or command_words(cmdline))


def test_a_process_of_multiprocessing_has_the_name_of_its_module() -> None:
    code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)"

    assert job_words(("python", "-B", "-c", code)) == "multiprocessing.spawn"
    assert job_words(("python", "-c", "print(1)")) == "python -c print(1)"
