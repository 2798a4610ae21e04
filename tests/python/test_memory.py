"""The memory of a rank: the same peak to the byte however it runs, and an end to it where --memory-limit says so."""

import json
import re
from pathlib import Path

import pytest

from prismllm.trace import load

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
WORLD = 2

# One allocation in each line that matters, a barrier behind it: in the trace, what stands between two of them.
STEPS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
kept = torch.zeros(1000)
dist.barrier()
if rank == 1: passing = torch.zeros(300_000).double().sum()
dist.barrier()
more = [torch.zeros(100_000) for _ in range(3)]
dist.barrier()
del more
dist.barrier()
if rank == 0: passing = torch.zeros(700_000); del passing
dist.barrier()
last = torch.zeros(50)
dist.barrier()
dist.destroy_process_group()
"""

# Every kind of operation for which a backend may want memory of its own. What is communicated stays: when a backend
# lets go of the tensors of an operation that has ended is chance.
OPERATIONS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mine, whole, strided = torch.ones(48_000), torch.ones(world * 48_000), torch.ones(300, 400).t()
blocks, others = whole.chunk(world), [torch.ones(48_000) for _ in range(world)]
both, several, received = torch.cat(others), [torch.ones(10_000), torch.ones(20_000)], torch.ones(30_000)
for _ in range(2):
    for tensor in (mine, strided):
        dist.all_reduce(tensor)
    dist.reduce(mine, 0)
    dist.broadcast(mine, 0)
    dist.all_gather(others, mine)
    dist.all_gather_into_tensor(whole, mine)
    dist.reduce_scatter(mine, others)
    dist.reduce_scatter_tensor(mine, whole)
    dist.all_to_all_single(whole, both)
    dist.gather(mine, others if rank == 0 else None)
    dist.scatter(mine, others if rank == 0 else None)
    with dist._coalescing_manager():
        for tensor in several:
            dist.all_reduce(tensor)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, blocks[0], (rank + 1) % world),
                                        dist.P2POp(dist.irecv, mine, (rank - 1) % world)]):
        work.wait()
    future = dist.all_reduce(received, async_op=True).get_future()
    half = future.then(lambda done: done.value()[0] / 2).wait()
dist.barrier()
dist.destroy_process_group()
"""


WAYS = {
    "real": ["record"],
    "capture": ["capture", "--slots", 2],
    "one slot": ["capture", "--slots", 1],
    "alone": ["capture", "--slots", 2, "--inputs", "builtin", "--classes", "none"],
}


def peaks(path):
    trace = load(path)
    return [int(trace.rank(rank).memory.peak.max(initial=0)) for rank in trace.ranks]


@pytest.fixture
def run(run_prism, tmp_path):
    """run(how, program, *options) -> the completed process; its trace is HOW.prism, its summary HOW.json."""

    def run(how, program, *options, world=WORLD, words=()):
        if isinstance(program, str):
            path = tmp_path / "program.py"
            path.write_text(program)
            program = path
        command, *more = WAYS[how]
        written = ["-o", f"{how}.prism", "--json", f"{how}.json"]
        return run_prism(command, "-n", world, *more, *written, *options, program, *words)

    return run


@pytest.fixture
def ran(run, tmp_path):
    """The same, which must succeed; returns what the summary says of memory."""

    def ran(how, program, *options, **more):
        done = run(how, program, *options, **more)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / f"{how}.json").read_text())["memory"]

    return ran


def of(memory, key="peak_memory_bytes"):
    return [one[key] for one in memory["ranks"]]


@pytest.mark.parametrize(
    "program, world, ways",
    [
        (OPERATIONS, 2, ["capture", "one slot", "alone"]),
        ("ddp.py", 4, ["capture", "alone"]),
        ("fsdp2.py", 4, ["capture", "alone"]),
        ("tensor_parallel.py", 4, ["capture", "alone"]),
        ("pipeline.py", 4, ["capture"]),  # alone it needs rules
    ],
)
def test_a_ranks_peak_is_the_same_to_the_byte_in_real_runs_and_in_captures(ran, tmp_path, program, world, ways):
    program = program if "\n" in program else PROGRAMS / program
    # A thread of Gloo lets go of what it has sent when it gets to it: real runs may hold more for a moment, never less.
    expected = [min(runs) for runs in zip(*(of(ran("real", program, world=world)) for _ in range(3)), strict=True)]
    assert min(expected) > 1000
    for how in ways:
        memory = ran(how, program, world=world)
        assert of(memory) == peaks(tmp_path / f"{how}.prism") == expected
        assert of(memory, "peak_reserved_bytes") == expected  # no allocator keeps anything back here
        assert of(memory, "communicator_bytes") == [0] * world
        assert memory["limit_bytes"] is None


@pytest.mark.parametrize("program", ["ddp.py", "fsdp2.py"])
def test_a_ranks_peak_is_the_same_to_the_byte_when_it_is_timed(ran, run_prism, tmp_path, program):
    expected = of(ran("capture", PROGRAMS / program))
    done = run_prism("time", "capture.prism", "--slots", 2, "--json", "time.json", "-o", "timed.prism")
    assert done.returncode == 0, done.stderr
    assert of(json.loads((tmp_path / "time.json").read_text())["memory"]) == expected
    done = run_prism("time", "capture.prism", "--slots", 2, "--memory-limit", max(expected) - 1)
    assert done.returncode == 3 and figures_in(done.stderr)[2] == max(expected) - 1


def test_peaks_are_what_the_program_allocates(ran):
    # Rank 0: 1000 floats stay, 700,000 come and go. Rank 1: 1000 and the same 300,000 as floats and as doubles.
    assert of(ran("capture", STEPS)) == [4 * 1000 + 4 * 700_000, 4 * 1000 + (4 + 8) * 300_000]


def line_of_peak(path, rank):
    """The line of STEPS whose memory the trace says was the most: as many barriers before it as issues in the trace."""
    columns = load(path).rank(rank)
    steps = columns.memory
    node = int(steps.node[steps.peak.argmax()])
    before = int(columns.is_kind("issue")[:node].sum())
    barriers = [number for number, line in enumerate(STEPS.splitlines(), 1) if "barrier" in line]
    return barriers[before - 1] + 1


def figures_in(text):
    """(rank, asked for, limit, allocated, held by communicators, free) of the error."""
    found = re.search(r"OutOfMemoryError: rank (\d+) is out of memory\. (.*)", text)
    assert found, text
    exact = re.findall(r"\((\d+) bytes\)|\b(\d+) bytes(?!\))", found[2])
    return int(found[1]), *(int(with_unit or alone) for with_unit, alone in exact)


@pytest.mark.parametrize("how", ["real", "capture", "alone"])
def test_one_byte_below_the_peak_fails_where_the_trace_says_and_the_peak_itself_passes(ran, run, tmp_path, how):
    peak = max(of(ran(how, STEPS)))
    line = line_of_peak(tmp_path / f"{how}.prism", 1)
    assert peak == 4 * 301_000 + 8 * 300_000 and "300_000" in STEPS.splitlines()[line - 1]
    ran(how, STEPS, "--memory-limit", peak)
    done = run(how, STEPS, "--memory-limit", peak - 1)
    assert done.returncode == 3
    assert figures_in(done.stderr) == (1, 8 * 300_000, peak - 1, 4 * 301_000, 0, 8 * 300_000 - 1)
    assert "rank 1 failed:" in done.stderr
    assert f'program.py", line {line}, in <module>' in done.stderr


def test_the_other_rank_fails_where_its_own_peak_is(ran, run, tmp_path):
    peak = min(of(ran("capture", STEPS)))
    line = line_of_peak(tmp_path / "capture.prism", 0)
    done = run("capture", STEPS.replace("if rank == 1: passing", "if False: passing"), "--memory-limit", peak - 1)
    assert done.returncode == 3
    assert figures_in(done.stderr) == (0, 4 * 700_000, peak - 1, 4000, 0, 4 * 700_000 - 1)
    assert f'program.py", line {line}, in <module>' in done.stderr


@pytest.mark.parametrize("program", ["ddp.py", "fsdp2.py"])
def test_training_fails_in_the_same_place_in_every_way_of_running_it(ran, run, program):
    peak = max(of(ran("capture", PROGRAMS / program)))
    ran("capture", PROGRAMS / program, "--memory-limit", peak)
    places = set()
    for how in ("real", "capture", "alone"):
        done = run(how, PROGRAMS / program, "--memory-limit", peak - 1)
        assert done.returncode == 3
        _, wanted, limit, allocated, *_ = figures_in(done.stderr)
        assert (limit, wanted + allocated) == (peak - 1, peak)  # the allocation that makes the peak, and no other
        places.add(tuple(re.findall(r'File "(?!.*prismllm/)(.*)", line (\d+)', done.stderr)))
    assert len(places) == 1 and any(file.endswith(program) for file, _ in places.pop())


CAUGHT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
kept = [torch.ones(100_000) for _ in range(5)]
try:
    batch = torch.ones(600_000 if rank == 0 else 500_000)
except torch.OutOfMemoryError as reason:
    assert isinstance(reason, torch.cuda.OutOfMemoryError) and "out of memory" in str(reason)
    kept.clear()
    batch = torch.ones(600_000)
total = batch[:1] * len(kept)
dist.all_reduce(total)
print("TOTAL", rank, total.item(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["real", "capture", "alone"])
def test_a_program_that_catches_it_frees_and_goes_on_and_only_that_rank_has_seen_it(ran, run, how):
    done = run(how, CAUGHT, "--memory-limit", 4 * 1_001_000)
    assert done.returncode == 0, done.stderr
    totals = {line.partition("TOTAL ")[2] for line in done.stdout.splitlines() if "TOTAL" in line}
    # Rank 0 has nothing kept, rank 1 five tensors; alone each takes its peer to be as itself.
    assert totals == ({"0 0.0", "1 10.0"} if how == "alone" else {"0 5.0", "1 5.0"})


THREADS = """
import threading, torch, torch.distributed as dist
dist.init_process_group("gloo")
failed = []
def work():
    for _ in range(200):
        try:
            torch.empty(25_000)
        except torch.OutOfMemoryError:
            failed.append(1)
kept = torch.empty(75_000)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print("FAILED", len(failed), flush=True)
"""


def test_threads_share_the_limit(ran):
    memory = ran("capture", THREADS, "--memory-limit", 400_000, world=1)
    assert of(memory) == [400_000]  # never more, although four threads would have taken 700,000


TWO_GROUPS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
group = dist.new_group([0, 1])
tensor = torch.ones(1000)
dist.all_reduce(tensor)
dist.all_reduce(tensor)
dist.all_reduce(tensor, group=group)
dist.destroy_process_group(group)
dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)
dist.destroy_process_group()
"""
MIB = 1 << 20


def without_message(program):
    return program.replace("dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)\n", "")


@pytest.mark.parametrize("how", ["real", "capture", "alone"])
def test_communicators_of_nccl_are_counted_as_they_connect(ran, how):
    memory = ran(how, TWO_GROUPS)
    # Two rings within a node, of 24 channels of 12 MiB; one is destroyed before the message of 32 channels.
    assert of(memory, "communicator_bytes") == [2 * 288 * MIB, (288 + 32 * 10) * MIB]
    assert of(memory, "peak_total_bytes") == [2 * 288 * MIB + 4000, (288 + 32 * 10) * MIB + 4000]
    assert of(memory) == [4000, 4000]


def test_ranks_on_several_nodes_have_rings_across_them(ran):
    program = (
        without_message(TWO_GROUPS)
        .replace("new_group([0, 1])", "new_group([0, 2])")
        .replace("dist.all_reduce(tensor, group=group)", "dist.get_rank() % 2 or dist.all_reduce(tensor, group=group)")
        .replace("dist.destroy_process_group(group)\n", "")
    )
    memory = ran("capture", program, "--nproc-per-node", 2, world=4)
    # Of the world: in each node of two a link of 12 MiB and 20 MiB to and from others, on 16 channels; of the group of
    # one in each node: 16 channels of 20 MiB.
    world, pair = 16 * (12 + 20) * MIB // 2, 16 * 20 * MIB
    assert of(memory, "communicator_bytes") == [world + pair, world, world + pair, world]


@pytest.mark.parametrize("how", ["real", "capture"])
def test_a_communicator_that_does_not_fit_fails_where_it_would_connect(ran, run, how):
    limit = 2 * 288 * MIB + 4000
    program = without_message(TWO_GROUPS)
    ran(how, program, "--memory-limit", limit)
    done = run(how, program, "--memory-limit", limit - 1)
    assert done.returncode == 3
    line = next(number for number, text in enumerate(TWO_GROUPS.splitlines(), 1) if "group=group" in text)
    assert f'program.py", line {line}, in <module>' in done.stderr
    _, *figures = figures_in(done.stderr)
    assert figures == [288 * MIB, limit - 1, 4000, 288 * MIB, 288 * MIB - 1]
    assert "the communicator of group '1' (nccl, 2 ranks)" in done.stderr
    ran(how, program, "--memory-limit", 5000, "--communicator-memory", "none")


def test_a_given_size_stands_for_each_group_whatever_its_backend(ran):
    memory = ran("capture", TWO_GROUPS.replace("nccl", "gloo"), "--communicator-memory", "100MiB")
    assert of(memory, "communicator_bytes") == [200 * MIB, 200 * MIB]


def test_ranks_that_do_not_run_have_the_memory_of_one_of_their_class(run_prism, tmp_path):
    (tmp_path / "program.py").write_text(without_message(TWO_GROUPS).replace("[0, 1]", "range(8)"))
    done = run_prism("capture", "-n", 8, "--inputs", "builtin", "--verify", 0, "--json", "job.json", "program.py")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "job.json").read_text())
    assert summary["inputs"]["ranks"] < 8
    assert of(summary["memory"]) == [4000] * 8
    assert of(summary["memory"], "communicator_bytes") == [2 * 288 * MIB] * 8


def test_the_summary_says_who_held_most(run):
    done = run("capture", TWO_GROUPS, "--memory-limit", "80GiB")
    row = next(line for line in done.stdout.splitlines() if line.startswith(" peak memory"))
    assert (
        row.split(None, 2)[2] == "up to 3.9 KiB of tensors, 608.0 MiB of communicators (a model), of 80.0 GiB, rank 1"
    )


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--memory-limit", "80Gib/s"], "'80Gib/s' is not a size"),
        (["--memory-limit", "0"], "'0' is not a size"),
        (["--communicator-memory", "some"], "'some' is none of: auto, none, a number of bytes"),
    ],
)
@pytest.mark.parametrize("command", ["record", "capture", "time"])
def test_sizes_that_are_none_are_refused_in_one_line(run_prism, command, options, complaint):
    done = run_prism(command, *options, "-n", "2", "program.py") if command != "time" else run_prism(
        command, *options, "job.prism"
    )  # fmt: skip
    assert done.returncode == 2 and complaint in done.stderr and len(done.stderr.splitlines()) == 1


# What stands for a device of 141 GiB: torch's allocator there, as far as prism has to do with it.
DEVICE = """
import types, torch, torch.distributed as dist
total, reserved, rooms = 141 << 30, 10 << 30, []
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=total)
torch.cuda.memory_reserved = lambda device: reserved
torch.cuda.max_memory_allocated = lambda device: 9 << 30
torch.cuda.max_memory_reserved = lambda device: 11 << 30
torch.cuda.set_per_process_memory_fraction = lambda part, device: rooms.append(int(part * total))
for call, *_ in torch.cuda._queued_calls:
    if getattr(call, "__module__", "") == "prismllm.memory":
        call()
dist.init_process_group("nccl")
group = dist.new_group([0, 1])
on_the_host = torch.ones(40_000_000)
dist.all_reduce(torch.ones(1000))
reserved = (80 << 30) - (300 << 20)
try:
    dist.all_reduce(torch.ones(1000), group=group)
except torch.OutOfMemoryError as reason:
    print("REFUSED", reason, flush=True)
reserved = 10 << 30
dist.all_reduce(torch.ones(1000), group=group)
dist.destroy_process_group()
print("ROOMS", rooms, flush=True)
"""


def test_on_an_accelerator_torchs_own_allocator_has_the_limit_and_tells_the_peaks(ran, run, tmp_path):
    done = run("capture", DEVICE, "--memory-limit", "80GiB")
    assert done.returncode == 0, done.stderr
    limit, ring = 80 << 30, 288 * MIB
    rooms = {line.partition("ROOMS ")[2] for line in done.stdout.splitlines() if "ROOMS" in line}
    # All of it; with the first communicator; with the second; without both again.
    assert rooms == {str([limit, limit - ring, limit - 2 * ring, limit - ring, limit])}
    refused = [line for line in done.stdout.splitlines() if "REFUSED" in line]
    assert len(refused) == 2 and all(f"would hold {2 * ring} bytes of cuda:0" in line for line in refused)
    for one in json.loads((tmp_path / "capture.json").read_text())["memory"]["ranks"]:
        assert (one["peak_memory_bytes"], one["peak_reserved_bytes"]) == (9 << 30, 11 << 30)
        assert one["peak_total_bytes"] == (11 << 30) + 2 * ring
