import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from pipeline import Collector


@pytest.fixture(scope="session")
def collector():
    return Collector()


@pytest.fixture(autouse=True)
def queue_logging(collector):
    collector.attach()
    yield
    collector.detach()
