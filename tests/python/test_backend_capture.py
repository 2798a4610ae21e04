"""Route capture: the same programs as with Gloo, served by the coordinator, on one slot, two, and one per rank."""

import collectives
import pytest
import torch
import torch.distributed as dist
import worlds

WORLD = 4


@pytest.mark.parametrize("slots", [1, 2, WORLD])
def test_collectives_are_those_of_gloo(of_gloo, slots):
    answers, error = worlds.capture(WORLD, collectives.job, "gloo", slots=slots)
    assert error is None
    for rank in range(WORLD):
        assert collectives.differences(of_gloo[rank], answers[rank]) == []


@pytest.mark.parametrize("name", ["nccl", "prism", "cpu:gloo,cuda:nccl", None])
def test_whatever_backend_the_program_names(of_gloo, name):
    answers, error = worlds.capture(WORLD, collectives.job, name)
    assert error is None
    for rank in range(WORLD):
        assert collectives.differences(of_gloo[rank], answers[rank]) == []


def _averages(rank, world):
    dist.init_process_group("gloo")
    out = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.tensor([rank, -rank, 10]).to(dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        out.append(tensor)
    dist.destroy_process_group()
    return out


def test_avg_is_the_mean_as_torch_documents_it():
    # Ranks 0, 1, 2: the mean of 0, 1, 2 is 1, that of 10, 10, 10 is 10.
    answers, error = worlds.capture(3, _averages)
    assert error is None
    for tensors in answers:
        assert [tensor.tolist() for tensor in tensors] == [[1, -1, 10]] * 3


def _scaled_sums(rank, world):
    dist.init_process_group("nccl")
    out = []
    for factor in (0.5, torch.tensor([rank + 1.0])):
        op = dist._make_nccl_premul_sum(factor)
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.tensor([rank, 2.0, -4.0], dtype=dtype)
            dist.all_reduce(tensor, op)
            chunk = torch.empty(1, dtype=dtype)
            dist.reduce_scatter_tensor(chunk, torch.full((world,), 8.0, dtype=dtype), op)
            out.append((tensor.tolist(), chunk.item()))
    dist.destroy_process_group()
    return out


def test_premul_sum_scales_before_it_sums_as_nccl_does():
    answers, error = worlds.capture(3, _scaled_sums)
    assert error is None
    # Ranks 0, 1, 2 put in [r, 2, -4], times 0.5, and times r + 1.
    half, own = ([1.5, 3.0, -6.0], 12.0), ([0 * 1 + 1 * 2 + 2 * 3, 12.0, -24.0], 48.0)
    assert answers == [[half, half, own, own]] * 3


def _spin(rank, world):
    dist.init_process_group("gloo")
    work = dist.all_reduce(torch.ones(1), async_op=True)
    polls = 0
    while not work.is_completed():
        polls += 1
    dist.destroy_process_group()
    return work.result()[0].item()


def test_ranks_that_spin_on_is_completed_finish_on_one_slot():
    answers, error = worlds.capture(3, _spin, slots=1)
    assert error is None
    assert answers == [3.0, 3.0, 3.0]


# Stock Gloo's destructor joins its threads under the GIL, which one of them may want for what is left of a Python
# callback. A rank's process of these tests ends without destructors.
_alive = []


def _ddp(rank, world, hook):
    worlds.file_init("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).double()
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    if hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(process_group=None, start_powerSGD_iter=2, min_compression_rate=1)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook == "then":
        ddp.register_comm_hook(
            None,
            lambda _, bucket: (
                dist.all_reduce(bucket.buffer(), async_op=True)
                .get_future()
                .then(lambda future: future.value()[0] / world)
            ),
        )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * world + rank), dtype=torch.float64)
        loss = ddp(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()  # Gloo's processes must not leave each other early
    dist.destroy_process_group()
    _alive.append(ddp)
    return losses


@pytest.mark.parametrize("hook", [None, "then"])
@pytest.mark.parametrize("slots", [1, 2])
def test_ddp_trains_as_with_gloo(hook, slots):
    expected = worlds.run_ranks(2, _ddp, hook)
    answers, error = worlds.capture(2, _ddp, hook, slots=slots)
    assert error is None
    for mine, plain in zip(answers, expected, strict=True):
        assert mine == pytest.approx(plain, rel=1e-12)


def test_powersgd_which_issues_and_waits_inside_callbacks_does_not_hang():
    once, error = worlds.capture(2, _ddp, "powersgd", slots=1)
    assert error is None
    again, error = worlds.capture(2, _ddp, "powersgd", slots=2)
    assert error is None
    assert once == again


def _profiled(rank, world):
    dist.init_process_group("gloo")
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.zeros(3, 5))
        dist.all_gather([torch.zeros(2) for _ in range(world)], torch.zeros(2))
        work = dist.isend(torch.zeros(7), 1 - rank), dist.irecv(torch.zeros(7), 1 - rank)
        for one in work:
            one.wait()
    events = [event for event in profile.function_events if event.name.startswith("gloo:")]
    assert all(event.is_async for event in events)
    dist.barrier()
    dist.destroy_process_group()
    return sorted((event.name, event.input_shapes) for event in events)


def test_a_profile_shows_what_it_shows_with_gloo():
    answers, error = worlds.capture(2, _profiled)
    assert error is None
    assert answers == worlds.run_ranks(2, _profiled)


def _impatient(rank, world):
    from datetime import timedelta

    dist.init_process_group("gloo")
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    message = ""
    if rank == 0:
        try:
            dist.barrier(group)
        except dist.DistBackendError as failure:
            message = str(failure)
    dist.barrier()
    dist.destroy_process_group()
    return message


def test_a_program_that_lets_a_short_timeout_pass_gets_its_exception_and_goes_on():
    answers, error = worlds.capture(2, _impatient)
    assert error is None
    assert "was not complete after its timeout of 1.0 s; missing: ranks 1" in answers[0]


def _monitored(rank, world):
    from datetime import timedelta

    dist.init_process_group("gloo")
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    failures = []
    for wait_all_ranks in (False, True):
        if rank not in (1, 2):
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=0.2), wait_all_ranks=wait_all_ranks)
            except RuntimeError as failure:
                failures.append(str(failure))
        dist.barrier()
    dist.destroy_process_group()
    return failures


def test_a_monitored_barrier_names_who_did_not_come():
    answers, error = worlds.capture(WORLD, _monitored)
    assert error is None
    assert answers[0] == [
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms",
        "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 200 ms",
    ]
    reached = "[Rank 3]: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for"
    assert [failure[: len(reached)] for failure in answers[3]] == [reached] * 2


def _sparse_gradients(rank, world):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(20, 4, sparse=True), torch.nn.Linear(4, 1)).double()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        # Ranks look at different rows, and at different numbers of them.
        rows = torch.randint(20, (4, 1 + 2 * rank), generator=torch.Generator().manual_seed(step * world + rank))
        loss = ddp(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()
    dist.destroy_process_group()
    _alive.append(ddp)
    return losses


def test_embeddings_with_sparse_gradients_train_as_with_gloo():
    expected = worlds.run_ranks(3, _sparse_gradients)
    answers, error = worlds.capture(3, _sparse_gradients)
    assert error is None
    for mine, plain in zip(answers, expected, strict=True):
        assert mine == pytest.approx(plain, rel=1e-12)


def _shape_mismatch(rank, world):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(4 + rank))


def test_members_that_disagree_are_an_error_that_names_rank_and_operation():
    _, error = worlds.capture(2, _shape_mismatch)
    assert "all_reduce" in error
    assert "[4]" in error and "[5]" in error


def _negative_tag(rank, world):
    dist.init_process_group("gloo")
    dist.send(torch.ones(1), 1, tag=-5) if rank == 0 else dist.recv(torch.ones(1), 0, tag=-5)


def _sparse(rank, world):
    dist.init_process_group("gloo")
    # torch's dispatcher lets a sparse tensor through to all_reduce alone; the backend itself can be called.
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.broadcast(torch.ones(2, 2).to_sparse(), 0).wait()


def _two_first_ranks(rank, world):
    dist.init_process_group("gloo", rank=0, world_size=world)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (_negative_tag, "tag -5; accepted: 0 and above"),  # Gloo: "Tag must be nonnegative"
        (_sparse, "a sparse tensor is not supported under capture"),
        (_two_first_ranks, "this process is rank 1 of the job and joins as rank 0 of [0, 1]"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_value_and_what_is_accepted(body, complaint):
    _, error = worlds.capture(2, body, slots=2)
    assert complaint in error


def _store(rank, world):
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    store.set(f"key{rank}", f"value{rank}")
    value = store.get(f"key{(rank + 1) % world}").decode()
    count = store.add("counter", rank + 1)
    dist.barrier()
    store.append("log", "ab")
    dist.barrier()
    out = [value, store.add("counter", 0), len(store.get("log")), store.check(["key0", "key1"]), store.check(["no"])]
    out.append(store.compare_set("once", "", "first").decode())
    assert 1 <= count <= 3
    with pytest.raises(dist.DistStoreError):
        from datetime import timedelta

        store.wait(["never"], timedelta(milliseconds=20))
    dist.destroy_process_group()
    return out


def test_the_store_is_served_by_the_coordinator():
    answers, error = worlds.capture(2, _store, slots=1)
    assert error is None
    assert answers[0] == ["value1", 3, 4, True, False, "first"]
    assert answers[1] == ["value0", 3, 4, True, False, "first"]


def _init_again(rank, world):
    sums = []
    for _ in range(3):
        dist.init_process_group("gloo", init_method="tcp://localhost:1234", rank=rank, world_size=world)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        group = dist.new_group([0, 1])
        dist.all_reduce(tensor, group=group)
        sums.append(tensor.item())
        dist.destroy_process_group()
    return sums


def test_groups_can_be_destroyed_and_made_again():
    answers, error = worlds.capture(2, _init_again)
    assert error is None
    assert answers == [[4.0, 4.0, 4.0]] * 2


def _split(rank, world):
    dist.init_process_group("gloo")
    child = dist.split_group(split_ranks=[[0, 2], [3, 1]])
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, src=dist.get_global_rank(child, 0), group=child)
    size, mine = child.size(), child.rank()
    dist.destroy_process_group()
    return tensor.item(), size, mine


@pytest.mark.skipif(
    not hasattr(dist.distributed_c10d.Backend, "_ensure_backend_registered"), reason="needs a GPU there"
)
def test_split_group_keeps_the_order_of_ranks():
    answers, error = worlds.capture(4, _split)
    assert error is None
    assert answers == [(0.0, 2, 0), (3.0, 2, 1), (0.0, 2, 1), (3.0, 2, 0)]


def _any_source(rank, world):
    dist.init_process_group("gloo")
    if rank:
        dist.send(torch.tensor([float(rank)]), 0)
        dist.destroy_process_group()
        return None
    tensor, senders = torch.zeros(1), []
    for _ in range(world - 1):
        sender = dist.recv(tensor)
        assert tensor.item() == sender
        senders.append(sender)
    dist.destroy_process_group()
    return sorted(senders)


def test_a_receive_from_anyone_says_who_it_was():
    answers, error = worlds.capture(3, _any_source)
    assert error is None
    assert answers[0] == [1, 2]


def _unusual_tensors(rank, world):
    dist.init_process_group("gloo")
    turned = torch.zeros(3, 2 * world).t()  # not contiguous, gathered into by rows
    dist.all_gather_into_tensor(turned, torch.full((2, 3), rank + 1.0))
    scattered = torch.zeros(1, 3)
    dist.reduce_scatter_tensor(scattered, (torch.arange(3.0 * world).view(3, world) + rank).t())
    sparse = torch.sparse_coo_tensor([[rank, world]], [1.0, 2.0], (world + 1,))
    work = dist.all_reduce(sparse, async_op=True)
    work.wait()
    dist.destroy_process_group()
    return turned[:, 0].tolist(), scattered.tolist(), work.result()[0].to_dense().tolist()


def test_tensors_that_are_not_contiguous_or_sparse():
    answers, error = worlds.capture(2, _unusual_tensors)
    assert error is None
    for rank, (gathered, scattered, summed) in enumerate(answers):
        assert gathered == [1.0, 1.0, 2.0, 2.0]
        # Row `rank` of [[0, 2, 4], [1, 3, 5]], plus itself with 1 added.
        assert scattered == [[2 * x + 1.0 for x in (rank, rank + 2, rank + 4)]]
        assert summed == [1.0, 1.0, 4.0]


def _merged(rank, world):
    from datetime import timedelta

    dist.init_process_group("gloo")
    half = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    store = dist.PrefixStore("meeting", dist.distributed_c10d._get_default_store())
    whole = half.merge_remote_group(store, world, timedelta(seconds=30), "whole")
    total = torch.tensor([rank + 1.0])
    whole.allreduce([total]).wait()
    return whole.size(), total.item()


@pytest.mark.skipif(not hasattr(dist.ProcessGroup, "merge_remote_group"), reason="this torch cannot merge groups")
def test_groups_that_merge_reduce_together():
    answers, error = worlds.capture(4, _merged)
    assert error is None
    assert answers == [(4, 10.0)] * 4


def _made_again(rank, world):
    """Torch gives such a group the name of the one before, which others may still have."""
    dist.init_process_group("gloo")
    sums = []
    for step in range(5):
        group = dist.new_group([0, 2], use_local_synchronization=True) if rank != 1 else None
        if group:
            sums.append(torch.tensor([rank + step]))
            dist.all_reduce(sums[-1], group=group)
            dist.destroy_process_group(group)
    return [total.item() for total in sums]


def test_a_group_made_again_is_another():
    answers, error = worlds.capture(3, _made_again)
    assert error is None
    assert answers == [[2, 4, 6, 8, 10], [], [2, 4, 6, 8, 10]]


def _gathered_into_one_tensor(rank, world):
    dist.init_process_group("nccl")  # Gloo has no such operation
    output = torch.zeros(world, 2) if rank == 1 else torch.zeros(0)
    dist.gather_single(torch.tensor([[rank, 10.0 * rank]]), output if rank == 1 else None, dst=1)
    return output.tolist()


@pytest.mark.skipif(not hasattr(dist, "gather_single"), reason="this torch has no gather_single")
def test_the_root_of_gather_single_has_a_row_of_every_member():
    answers, error = worlds.capture(3, _gathered_into_one_tensor)
    assert error is None
    assert answers == [[], [[0, 0], [1, 10], [2, 20]], []]
