"""torch.distributed.checkpoint under DDP, in a program that loads what it has saved: each rank has its own folder."""

import atexit
import functools
import shutil
import tempfile

from prismllm import inputs


@functools.cache
def folder():
    path = tempfile.mkdtemp(prefix="dcp_")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


inputs.objects(lambda communication: [folder()], number=range(2), name="folder")
inputs.replicated_checkpoint()
