"""Recorded tensors: what an emulation needs is kept, gives the job's own results bit for bit, and nothing more is."""

import json
import os
import shutil
from pathlib import Path

import pytest
import recorded_jobs
import small_traces
import torch
import worlds

import prismllm
import prismllm.data
from prismllm.trace import diff

WORLD = 4
SANDBOXES = [(0,), (1, 3), (0, 1, 2), (3,), (0, 1, 2, 3)]


def record(folder, body, for_ranks=None, **options):
    folder.mkdir()
    results, error = worlds.capture(
        WORLD, body, data_directory=os.fsencode(folder), data_for_ranks=for_ranks, **options
    )
    assert error is None
    return prismllm.data.open(folder), results


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """(the record of all inputs, [rank] -> log)"""
    return record(tmp_path_factory.mktemp("data") / "all", recorded_jobs.job)


@pytest.fixture(scope="module", params=SANDBOXES, ids=lambda ranks: "-".join(map(str, ranks)))
def for_sandbox(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sandbox"
    return record(folder, recorded_jobs.job, list(request.param), slots=WORLD)[0]


def find(data, members, what):
    """KeyError where nothing is kept."""
    for group in data.groups:
        if isinstance(what, int) and tuple(named(data, group)) == members:
            return data.collective(group, what)
        if not isinstance(what, int) and tuple(named(data, group)) == members:
            return data.message(group, *what)
    raise KeyError(members)


def named(data, group):
    c, at = data.columns, data.groups.index(group)
    return c["group_member"][c["group_member_offset"][at] : c["group_member_offset"][at + 1]].tolist()


def compare(kept, whole, results, sandbox):
    """The number of outputs of sandbox ranks that were compared."""
    compared = 0
    for rank in sandbox:
        for (members, what), outputs in results[rank].items():
            expected = b"".join(map(recorded_jobs.raw, outputs))
            try:
                one = find(kept, members, what)
            except KeyError:
                one = find(whole, members, what)  # needs nothing of others
                assert set(one.senders) <= set(sandbox)
            live = find(whole, members, what).inputs
            assert recorded_jobs.received(one, live, rank, sandbox) == expected, (rank, one)
            compared += 1
    return compared


def test_a_sandbox_gets_from_the_record_and_its_own_inputs_what_the_job_gave(everything, for_sandbox):
    whole, results = everything
    assert compare(for_sandbox, whole, results, for_sandbox.for_ranks) > 150 * len(for_sandbox.for_ranks)


def test_all_inputs_together_give_what_the_job_gave(everything):
    whole, results = everything
    assert whole.for_ranks is None and whole.world_size == WORLD
    assert compare(whole, whole, results, range(WORLD)) > 600


def test_only_what_a_sandbox_receives_from_others_is_kept(for_sandbox):
    for one in for_sandbox:
        sandbox = set(for_sandbox.for_ranks) & set(one.members)
        virtual = set(one.members) - sandbox
        assert set(one.senders) <= virtual
        if not virtual or not sandbox or (one.op in ("reduce", "gather") and one.root not in sandbox):
            assert not one.senders and not one.virtual_part()
        elif one.op in ("broadcast", "scatter") and one.root in sandbox:
            assert not one.senders
        elif one.op.startswith("all_to_all"):
            receivers = {one.members.index(rank) for rank in sandbox}
            assert all(set(one.inputs(rank)) == receivers for rank in virtual)
        elif one.op.startswith("reduce_scatter"):
            assert not one.senders and len(one.virtual_part()) in (
                len(sandbox),
                2 * len(sandbox),
            )  # of one, two tensors
        elif one.op == "send":
            assert (one.source in sandbox) != bool(one.senders)
    if len(for_sandbox.for_ranks) == WORLD:
        assert len(for_sandbox.columns["tensor_bytes"]) == 0


def test_digests_name_what_sandbox_ranks_sent(everything, for_sandbox):
    whole, _ = everything
    sandbox, compared = set(for_sandbox.for_ranks), 0
    for one in for_sandbox:
        same = find(
            whole, tuple(one.members), one.seq if one.op != "send" else (one.source, one.destination, one.tag, one.seq)
        )
        assert set(one.digests) == set(same.digests) & sandbox
        for rank, digest in one.digests.items():
            inputs = same.inputs(rank)
            assert digest == same.digests[rank]
            assert digest == prismllm.data.digest(inputs[index].array for index in sorted(inputs))
            compared += 1
    assert compared > 100


def test_records_are_equal_byte_for_byte_with_any_number_of_slots(everything, tmp_path):
    whole, _ = everything
    again, _ = record(tmp_path / "again", recorded_jobs.job, slots=WORLD)
    files = sorted(os.listdir(whole.path))
    assert files == sorted(os.listdir(again.path)) == ["index.prismdata", "small-00000.prismdata"]
    for name in files:
        assert Path(whole.path, name).read_bytes() == Path(again.path, name).read_bytes()


def test_sums_of_scaled_inputs_are_kept_scaled(tmp_path):
    whole, results = record(tmp_path / "all", recorded_jobs.scaled_job)
    kept, _ = record(tmp_path / "kept", recorded_jobs.scaled_job, [2])
    assert compare(kept, whole, results, [2]) == 2
    assert kept.collective(kept.groups[0], 0).virtual_part()[0].dtype == "float64"


def test_equal_tensors_are_stored_once(tmp_path):
    def job(rank, world):
        worlds.file_init("gloo")
        for _ in range(3):
            torch.distributed.all_reduce(torch.ones(100))
        torch.distributed.destroy_process_group()

    data, _ = record(tmp_path / "d", job)
    assert len(data.columns["block_tensor"]) == 3 * WORLD
    assert data.columns["tensor_bytes"].tolist() == [400]


def test_every_file_opens_with_the_safetensors_package(everything):
    from safetensors import safe_open

    whole, _ = everything
    files = sorted(os.listdir(whole.path))
    found = 0
    for name in files:
        with safe_open(os.path.join(whole.path, name), "pt") as file:
            for key in file.keys() if name != "index.prismdata" else ():
                assert key.startswith(str(file.get_tensor(key).dtype).removeprefix("torch."))
                found += 1
    assert found == len(whole.columns["tensor_bytes"]) > 50
    whole.verify()


def test_a_job_whose_tensors_outrun_the_disk_and_the_memory_is_recorded_all_the_same(tmp_path):
    def job(rank, world):
        worlds.file_init("gloo")
        works = [
            torch.distributed.all_reduce(torch.full((1 << 18,), float(10 * n + rank)), async_op=True) for n in range(8)
        ]
        for work in works:
            work.wait()
        torch.distributed.destroy_process_group()

    options = {"memory_budget_bytes": 6 << 20, "spill_directory": os.fsencode(tmp_path)}
    data, _ = record(tmp_path / "d", job, **options)
    for n in range(8):
        for rank in range(WORLD):
            assert set(data.collective(data.groups[0], n).inputs(rank)[0].array.tolist()) == {10.0 * n + rank}


def damaged(whole, tmp_path, name, change):
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole.path, folder)
    file = folder / name
    content = file.read_bytes()
    file.write_bytes(change(content))
    return folder


DAMAGES = {
    "truncated": (lambda b: b[: len(b) // 2], "truncated"),
    "empty": (lambda b: b"", "the file has 0 bytes"),
    "no header": (lambda b: b"\xff" * 8 + b[8:], "header length is"),
    "broken JSON": (lambda b: b[:8] + b"x" + b[9:], "not acceptable JSON"),
    "offsets out of range": (lambda b: b.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1), "data_offsets is"),
    "another version": (lambda b: b.replace(b'\\"version\\":1', b'\\"version\\":2'), "version is 2; accepted: 1"),
    "a group's name lost": (lambda b: b.replace(b"comm_seq", b"comm_sex"), "column 'comm_seq' is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_one_clear_error(everything, tmp_path, damage):
    change, complaint = DAMAGES[damage]
    folder = damaged(everything[0], tmp_path, "index.prismdata", change)
    with pytest.raises(ValueError, match=complaint):
        prismllm.data.open(folder)


def test_a_damaged_shard_is_one_clear_error_where_it_is_needed(everything, tmp_path):
    shard = "small-00000.prismdata"
    folder = damaged(everything[0], tmp_path, shard, lambda b: b[:-1])
    with pytest.raises(ValueError, match=rf"{shard}: column .* may be truncated"):
        prismllm.data.open(folder).tensor(0)
    folder = damaged(everything[0], tmp_path, shard, lambda b: b[:-1] + bytes([b[-1] ^ 1]))
    prismllm.data.open(folder).tensor(0)
    with pytest.raises(ValueError, match=r"the content of tensor '.*' has the hash"):
        prismllm.data.open(folder).verify()
    (folder / shard).unlink()
    with pytest.raises(OSError, match=rf"cannot open .*{shard}"):
        prismllm.data.open(folder).tensor(0)
    with pytest.raises(OSError, match="cannot open"):
        prismllm.data.open(tmp_path / "nonesuch")


# A pipeline of two stages, each of two data parallel ranks; a monitored barrier, which is many messages of its own.
PIPELINE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
replicas = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
torch.manual_seed(rank)
for step in range(3):
    activation = torch.randn(1 << 19) if rank < 2 else torch.zeros(1 << 19)
    dist.send(activation, rank + 2) if rank < 2 else dist.recv(activation, rank - 2)
    dist.monitored_barrier()
    gradient = torch.randn(1000)
    dist.all_reduce(gradient, group=replicas)
    dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
"""


def test_the_graph_is_that_of_a_capture_without_data_and_names_the_same_communications(run_prism, tmp_path):
    (tmp_path / "job.py").write_text(PIPELINE)
    runs = {"plain": [], "all": ["--data", "all"]}
    for name, options in runs.items():
        options = ["-o", f"{name}.prism", "--json", f"{name}.json", *options]
        done = run_prism("capture", "-n", 4, *options, "job.py")
        assert done.returncode == 0, done.stderr
    plain, trace = (prismllm.load(tmp_path / f"{name}.prism") for name in runs)
    assert diff(plain, trace) == (True, None)
    assert len(os.listdir(tmp_path / "all")) == 2 + 6
    summary = json.loads((tmp_path / "all.json").read_text())
    sizes = 3 * (2 * (4 << 19) + 4 * 4000 + 4 * 12)
    different = 3 * (2 * (4 << 19) + 4 * 4000) + 12
    assert summary["data"] == {"dir": "all", "tensors": 30, "bytes": sizes, "distinct": 19, "stored_bytes": different}
    assert "30 tensors of 12.0 MiB, 19 different of 12.0 MiB, in all" in done.stdout
    assert "data" not in json.loads((tmp_path / "plain.json").read_text())
    data = prismllm.data.open(tmp_path / "all")
    data.check_trace(trace)
    world = next(group.name for group in trace.groups if len(group.members) == 4)
    assert data.message(world, 1, 3, seq=2).inputs(1)[0].array.size == 1 << 19
    sums = [one.seq for one in data if one.group == world and one.op == "all_reduce"]
    recorded = trace.rank(0).comm_seq[trace.rank(0).is_op("all_reduce")]
    assert sums == [1, 3, 5] and set(sums) <= set(recorded.tolist())  # between them, barriers


def test_a_trace_of_another_job_is_not_taken_for_this_ones(everything):
    with pytest.raises(ValueError, match=r"is of 4 ranks, .* of 2"):
        everything[0].check_trace(small_traces.message_pair())
    with pytest.raises(ValueError, match=r"group '0' .* has ranks .* it is missing"):
        everything[0].check_trace(small_traces.data_parallel([1, 1, 1, 1]))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--for-ranks", "0"], "--for-ranks says what --data keeps; give that as well"),
        (["--data", "d", "--for-ranks", "0-3,4"], "--for-ranks: rank 4 is not in the job; accepted: 0 to 3"),
        (["--data", "d", "--for-ranks", "3-0"], "'3-0' is not a list of ranks; accepted: ranks and ascending ranges"),
        (["--data", "d", "--for-ranks", ""], "'' is not a list of ranks"),
        (["--data", "full"], "--data: 'full' cannot be written (it holds files already; accepted: a new or an empty"),
        (["--data", "none/d"], "--data: 'none/d' cannot be written (No such file or directory)"),
        (["--data", "job.py"], "--data: 'job.py' cannot be written (Not a directory)"),
    ],
)
def test_wrong_use_is_told_before_the_program_runs_and_leaves_nothing(run_prism, tmp_path, options, complaint):
    (tmp_path / "job.py").write_text("raise SystemExit('was run')")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "index.prismdata").write_text("of another run")
    done = run_prism("capture", "-n", 4, *options, "job.py")
    assert done.returncode == 2 and complaint in done.stderr and "was run" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["full", "job.py"]
    assert (tmp_path / "full" / "index.prismdata").read_text() == "of another run"


def test_a_run_that_fails_leaves_the_folder_as_it_was(run_prism, tmp_path):
    program = PIPELINE.replace("dist.destroy", "assert rank != 2\ndist.destroy")
    (tmp_path / "job.py").write_text(program)
    (tmp_path / "d").mkdir()
    done = run_prism("capture", "-n", 4, "--data", "d", "job.py")
    assert done.returncode == 3 and "AssertionError" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["d", "job.py"] and os.listdir(tmp_path / "d") == []


def test_a_full_disk_is_told_with_what_was_written(run_prism, tmp_path, small_disk):
    (tmp_path / "job.py").write_text(PIPELINE.replace("range(3)", "range(6)"))
    done = run_prism("capture", "-n", 4, "--data", small_disk / "d", "job.py")
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr and "2097152 more were to follow (--data)" in done.stderr
    assert os.listdir(small_disk) == ["lost+found"]
    assert not (tmp_path / "job.prism").exists()


def test_what_a_killed_run_has_left_is_removed_by_the_next_one_but_not_what_is_in_use(tmp_path):
    from prismllm.cli.data_folder import data_folder

    left = tmp_path / "d.partial-killed12"
    left.mkdir()
    (left / "spool").write_text("half")
    (tmp_path / "d.partial-of-mine").mkdir()  # a user's
    with data_folder(str(tmp_path / "d")) as first:
        assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(first.partial), "d.partial-of-mine"])
        with data_folder(str(tmp_path / "d")) as second:
            assert os.path.isdir(first.partial)
            second.publish()
        with pytest.raises(OSError, match=r"--data: '.*d' cannot be made: "):
            open(os.path.join(tmp_path, "d", "file"), "w").close()
            first.publish()
    assert sorted(os.listdir(tmp_path)) == ["d", "d.partial-of-mine"]
