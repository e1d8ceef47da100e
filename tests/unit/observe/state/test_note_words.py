from __future__ import annotations

from mpwatch.observe.state.event_log import note_words


def test_an_exit_has_its_code_and_its_way() -> None:
    assert note_words("exit", {"code": 0, "how": "os._exit"}) == "exit: code 0; by os._exit"


def test_a_fork_names_the_threads_that_were_alive() -> None:
    data = {"threads": 3, "python_threads": ["pre", "log"], "torch_threads": 2, "libraries": []}

    assert note_words("fork", data) == "fork: 3 threads running; pre, log; torch uses 2"


def test_a_note_of_many_storages_has_their_path() -> None:
    data = {"storages": 300, "path": "._args[1].samples", "object": "SpawnProcess"}

    assert note_words("many-storages", data) == (
        "many storages: 300; in ._args[1].samples; of SpawnProcess"
    )


def test_a_process_start_names_the_child_and_its_target() -> None:
    data = {"name": "Process-4", "pid": 7, "method": "fork", "target": "train.work", "storages": 0}

    assert note_words("start", data).startswith("start: Process-4; process 7; by fork; train.work")


def test_a_note_of_generators_has_their_states() -> None:
    data = {"worker_id": 0, "dataset": "Images", "hashes": {"random": "1a2b", "numpy.random": "3c"}}

    assert note_words("generators", data) == "generators: of Images; random 1a2b, numpy.random 3c"


def test_a_note_of_cuda_has_the_stack_innermost_call_first() -> None:
    frames = [["_lazy_init", "/x/torch/cuda/__init__.py", 9], ["main", "/home/a/train.py", 12]]

    assert note_words("cuda-init", {"frames": frames, "tid": 3}) == (
        "cuda init: _lazy_init __init__.py:9 < main train.py:12"
    )


def test_another_note_has_its_general_fields() -> None:
    data = {"type": "ValueError", "text": "too [bold]many", "where": "main", "tid": 4}

    assert note_words("exception", data).startswith("exception: main; ValueError; too ")
