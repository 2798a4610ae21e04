"""Worlds of ranks for tests of the backend: a function of this kind runs in every rank, `run(*args) -> picklable`.

Real worlds are processes that meet through a FileStore; captured worlds are ranks that a coordinator serves. All are
forked from the test process, which therefore must not have started threads that hold locks."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import queue
import sys
import tempfile
import time
import traceback
import uuid

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed._functional_collectives  # slow imports: once here, instead of in each rank
import torch.nn.parallel

from prismllm.launch.environment import reserve_port

FORK = multiprocessing.get_context("fork")
PATIENCE_S = 60


class RankFailed(AssertionError):
    pass


def _rank_process(results, rank, environment, body, args):
    os.environ.update(environment)
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(PATIENCE_S - 5, exit=False, file=sys.__stderr__)
    try:
        # As plain bytes: torch's own reduction would share the memory of a process that ends.
        results.put((rank, pickle.dumps(body(*args)), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
    results.close()
    results.join_thread()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no atexit functions of pytest


def run_ranks(world_size, body, *args, environment=None, folder=None):
    """body(rank, world_size, *args) in `world_size` forked processes; their return values in rank order."""
    results = FORK.Queue()
    processes = []
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        port = stack.enter_context(reserve_port()).getsockname()[1]
        for rank in range(world_size):
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PRISM_TEST_FOLDER": str(folder),
                **(environment or {}),
            }
            process = FORK.Process(
                target=_rank_process, args=(results, rank, variables, body, (rank, world_size, *args))
            )
            process.start()
            processes.append(process)
        answers, failures = {}, []
        deadline = time.monotonic() + PATIENCE_S
        try:
            while len(answers) + len(failures) < world_size:
                rank, value, failure = results.get(timeout=max(0.1, deadline - time.monotonic()))
                if failure is None:
                    answers[rank] = pickle.loads(value)
                else:
                    failures.append(f"rank {rank}:\n{failure}")
                    deadline = min(deadline, time.monotonic() + 10)  # the others may wait for it
        except queue.Empty:
            if not failures:
                failures.append(f"only ranks {sorted(answers)} ended within {PATIENCE_S} s")
        finally:
            for process in processes:
                process.join(timeout=0 if failures else 30)
                if process.is_alive():
                    process.kill()
                    process.join()
        if failures:
            raise RankFailed("\n".join(failures))
        return [answers[rank] for rank in range(world_size)]


def file_init(name="gloo", tag="", **options):
    """init_process_group through a file in the test's folder; each `tag` once per world."""
    path = os.path.join(os.environ["PRISM_TEST_FOLDER"], f"rendezvous{tag}")
    dist.init_process_group(
        name,
        init_method=f"file://{path}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        **options,
    )


def _captured(rank, world_size, body, *args):
    from prismllm import takeover

    try:
        takeover.start_rank()
        result = body(rank, world_size, *args)
    except BaseException:
        takeover.finish_rank(traceback.format_exc())
        raise
    takeover.finish_rank()
    return result


def _serve(results, address, world_size, slots, options):
    from prismllm import _c10d

    torch.set_num_threads(1)
    coordinator = _c10d.Coordinator(address=address, world_size=world_size, slots=slots, **options)
    error = None
    try:
        coordinator.run()
    except (RuntimeError, OSError) as failure:
        error = str(failure)
    results.put((error, coordinator.statistics_json()))
    results.close()
    results.join_thread()
    os._exit(0)


def capture(world_size, body, *args, slots=1, environment=None, folder=None, **options):
    """body in `world_size` logical ranks on `slots` slots; ([return values], the coordinator's error or None).
    `options` are the coordinator's."""
    address = f"prism-test-{uuid.uuid4().hex}"
    report = FORK.Queue()
    server = FORK.Process(target=_serve, args=(report, address, world_size, slots, options))
    server.start()
    try:
        values, failure = None, None
        try:
            values = run_ranks(
                world_size,
                _captured,
                body,
                *args,
                environment={"PRISM_ROUTE": "capture", "PRISM_COORDINATOR": address, **(environment or {})},
                folder=folder,
            )
        except RankFailed as failed:
            failure = failed
        error, _ = report.get(timeout=30)
        if failure is not None and error is None:
            raise failure
        return values, error
    finally:
        server.join(timeout=5)
        if server.is_alive():
            server.kill()
            server.join()
