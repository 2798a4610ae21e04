"""torch's test case for one rank of a world of ours; apart from the tests, so that pytest does not take it for one."""

import os
import unittest

import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.distributed import distributed_test

WORLD = int(os.environ["WORLD_SIZE"])


class Name(str):
    """What the tests call the backend under prism. Some have a branch for each backend that they know by name: there
    ours is Gloo."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


NAME = Name(os.environ["PRISM_CONFORMANCE_NAME"])


class Case(distributed_test.DistributedTest._DistTestBase, MultiProcessTestCase):
    """One rank's side of a test."""

    world_size = WORLD

    def __init__(self, name, rank):
        unittest.TestCase.__init__(self, "id")
        self._testMethodName, self.rank = name, rank
        self.file_name = os.path.join(os.environ["PRISM_TEST_FOLDER"], "rendezvous")

    @property
    def init_method(self):
        return f"file://{self.file_name}"

    def _barrier(self, *_, **__):  # torch's looks at files for 10 s
        if dist.is_initialized():
            dist.barrier()
