"""Solo capture: ranks that run alone do what they do in the job, and the trace says who stood in for their peers."""

from pathlib import Path

import pytest
import torch

from prismllm.inputs import builtin, generators
from prismllm.inputs.communication import Communication
from prismllm.inputs.rule import rule, take_rules
from prismllm.trace import diff

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"


def results_in(printed):
    return [line for line in printed.splitlines() if "RESULT" in line]


# --- the same trace as with peers


@pytest.mark.parametrize(
    "name", ["ddp", "ddp_accumulation", "ddp_powersgd", "fsdp1", "fsdp2", "futures", "mesh_2d", "tensor_parallel"]
)
def test_with_peers_that_do_the_same_a_rank_does_what_it_does_in_the_job(captured, name):
    program = PROGRAMS / f"{name}.py"
    job, _, _ = captured(program)
    alone, summary, _ = captured(program, "--inputs", "builtin")
    assert diff(job, alone) == (True, None)
    assert summary["inputs"]["ranks"] == 4 and summary["switches"] <= 4


@pytest.mark.parametrize("name", ["collectives", "moe", "ddp_variants", "subgroups"])
def test_recorded_peers_give_each_rank_the_very_values_of_the_job(captured, rules, tmp_path, name):
    """The programs check every value that they receive."""
    program = PROGRAMS / f"{name}.py"
    job, _, printed = captured(program, "--data", tmp_path / "data")
    chosen = rules(f"inputs.rule('all').peers(inputs.recorded({str(tmp_path / 'data')!r}))")
    alone, _, printed_alone = captured(program, "--inputs", chosen)
    assert diff(job, alone) == (True, None)
    assert results_in(printed_alone) == results_in(printed)


def test_ranks_run_alone_one_slot_or_many_to_the_same_trace(captured, rules):
    chosen = rules("inputs.rule('noise', op='all_reduce').peers(inputs.normal())")
    traces = [captured(PROGRAMS / "ddp.py", "--inputs", chosen, slots=slots) for slots in (1, 4)]
    assert diff(traces[0][0], traces[1][0]) == (True, None)
    assert results_in(traces[0][2]) == results_in(traces[1][2]) != []


def test_rules_take_no_part_in_the_memory_of_the_job(captured, rules):
    chosen = rules("inputs.rule('big', op='all_reduce').peers(lambda c, peer, like: torch.zeros(1 << 20)[:1] + like)")
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(64)
for _ in range(3):
    dist.all_reduce(x[:1])
"""
    job, _, _ = captured(program)
    alone, _, _ = captured(program, "--inputs", chosen)
    peaks = [max(trace.rank(0).memory.peak.tolist()) for trace in (job, alone)]
    assert peaks[0] == peaks[1] < 1 << 20


# --- the paper's three cases (App. C)

STATUS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
flags = torch.tensor([1, 1, 0]) if dist.get_rank() == 0 else torch.zeros(3, dtype=torch.int64)
def dataloader_ready():
    dist.broadcast(flags, 0)
dataloader_ready()
if not flags[0]:
    raise SystemExit("rank 0 has no data")
for _ in range(2):
    dist.all_reduce(torch.ones(4))
"""
TOKENS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
tokens = torch.arange(2, 34) if dist.get_rank() == 0 else torch.empty(32, dtype=torch.int64)
dist.broadcast(tokens, 0)
assert 1 < len(tokens.unique()), "one token only"
loss = torch.nn.Embedding(34, 8)(tokens).sum()
dist.all_reduce(loss.detach())
"""
ROUTING = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
tokens, room = 64, 80
# Rank 0's tokens all go to its own expert; the others' to their own.
counts = torch.zeros(world, dtype=torch.int64)
counts[rank] = tokens
everybody = [torch.empty_like(counts) for _ in range(world)]
dist.all_gather(everybody, counts)
arriving = [int(theirs[rank]) for theirs in everybody]
if sum(arriving) > room:
    raise MemoryError(f"{sum(arriving)} tokens arrive, and there is room for {room}")
received = torch.empty(sum(arriving), 4)
dist.all_to_all_single(received, torch.ones(tokens, 4), arriving, counts.tolist())
"""


@pytest.mark.parametrize(
    ("program", "chosen", "without"),
    [
        (STATUS, "inputs.dataloader_status(call_site='*dataloader*')", "rank 0 has no data"),
        (TOKENS, "inputs.tokens(34)", "one token only"),
        (ROUTING, "inputs.zero_data_peers(op='all_gather')", "256 tokens arrive, and there is room for 80"),
    ],
    ids=["data loader status", "tokens", "routing"],
)
def test_the_papers_cases_need_a_rule_and_have_one(captured, rules, run_prism, tmp_path, program, chosen, without):
    job, _, _ = captured(program)
    alone, summary, _ = captured(program, "--inputs", rules(chosen))
    assert diff(job, alone) == (True, None)
    assert sum(summary["inputs"]["answered"].values()) > summary["inputs"]["answered"].get("default", 0)
    failed = run_prism("capture", "-n", 4, "--inputs", "builtin", "-o", "b.prism", tmp_path / "program.py")
    assert failed.returncode == 3 and without in failed.stderr


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_stages_of_a_pipeline_are_told_the_shape_of_what_comes(captured, rules, schedule):
    program, options = PROGRAMS / "pipeline.py", ["--schedule", schedule]
    job, _, _ = captured(program, arguments=options)
    alone, _, _ = captured(program, "--inputs", rules("inputs.pipeline_activations(2, 32)"), arguments=options)
    assert diff(job, alone) == (True, None)


# --- who answered


def test_explain_and_the_trace_say_who_answered_what(captured, rules):
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
pair = dist.new_group([0, 1], group_desc="first two")
for _ in range(3):
    dist.all_reduce(torch.ones(2, 3))
if dist.get_rank() < 2:
    dist.broadcast(torch.zeros(5, dtype=torch.int32), 0, group=pair)
"""
    chosen = rules("inputs.rule('second', op='all_reduce', number=1, group='default*').peers(2)")
    trace, summary, printed = captured(program, "--inputs", chosen, "--explain")
    listed = {(one["rule"], one["op"], one["group"]): one["times"] for one in summary["inputs"]["communications"]}
    assert listed == {
        ("second", "all_reduce", "default_pg"): 4,
        ("default", "all_reduce", "default_pg"): 8,
        ("default", "broadcast", "first two"): 1,
    }
    kept = trace.metadata["inputs"]
    assert kept["answered"] == {"default": 9, "second": 4}
    assert kept["defaults"] == {"all_reduce": 8, "broadcast": 1}
    assert len(kept["rules_sha256"]) == 64
    assert "second   4 x all_reduce sum float32 [2, 3] in 'default_pg' of 4, at program.py:6 in <module>" in printed
    assert "and 1 that bring nothing" in printed
    assert "losses and gradients mean nothing" in printed


def test_a_rule_sees_the_program_that_communicates_and_keeps_nothing_of_it(captured, rules):
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    x = torch.ones(1 << 18)
    dist.all_reduce(x)
    del x
"""
    job, _, _ = captured(program, world=2)
    look = rules("inputs.rule('seen', when=lambda c: c.frames and 'program.py:6' in c.call_site).peers(1)")
    alone, summary, _ = captured(program, "--inputs", look, world=2)
    assert summary["inputs"]["answered"] == {"seen": 40}
    (place,) = summary["inputs"]["communications"]
    assert place["call_site"].endswith("program.py:6 in <module>") and place["shapes"] == [[1 << 18]]
    assert diff(job, alone) == (True, None)
    assert alone.rank(0).memory.peak.max() == job.rank(0).memory.peak.max()


OF_TORCH = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
box = [{"a": 1} if dist.get_rank() == 0 else {"a": 1}]
dist.broadcast_object_list(box)
tokens = torch.full((3,), 7 if dist.get_rank() == 0 else 10**6)
dist.broadcast(tokens, 0)
flag = torch.full((1,), int(dist.get_rank() == 0))
dist.broadcast(flag, 0)
counts = [torch.zeros(2, dtype=torch.int64) for _ in range(dist.get_world_size())]
dist.all_gather(counts, torch.tensor([1, 2]))
assert dist.get_rank() == 0 or (tokens.max() < 50 and flag.item() == 1)
assert sum(counts).tolist() in ([1, 2], [4, 8]) and box == [{"a": 1}]
"""


def test_ready_made_rules_leave_alone_what_torch_sends_by_itself(captured, rules):
    chosen = "inputs.dataloader_status(shape=(1,))\ninputs.tokens(50)\ninputs.zero_data_peers()"
    job, _, _ = captured(OF_TORCH)
    alone, summary, _ = captured(OF_TORCH, "--inputs", rules(chosen))
    assert diff(job, alone) == (True, None)
    names = ("data loader status", "tokens", "zero-data peers")
    assert [summary["inputs"]["answered"][name] for name in names] == [3, 3, 4]


def test_what_one_line_does_for_the_second_time_and_generators_as_results(captured, rules):
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(3):
    x = torch.ones(4)
    dist.all_reduce(x)
    print("RESULT", x[0].item())
"""
    _, _, printed = captured(program, "--inputs", rules("inputs.rule(nth=1).result(inputs.constant(7))"), world=2,
                             slots=1)  # fmt: skip
    assert [line.split()[-1] for line in results_in(printed)] == ["2.0", "7.0", "2.0"] * 2


def test_keys_that_others_would_have_set_come_from_rules(captured, rules):
    program = """
import torch.distributed as dist
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    store.set("port", "1234")
    store.set("ready3", "yes")
while not store.check(["ready3"]):
    pass
assert store.get("port") == b"1234"
"""
    job, _, _ = captured(program)
    chosen = "inputs.store('port', '1234')\ninputs.store('ready*', lambda key: key[-1])"
    alone, _, _ = captured(program, "--inputs", rules(chosen))
    assert diff(job, alone) == (True, None)


def test_shares_of_several_sizes_and_functions_with_the_names_of_torchs(captured):
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_gather([torch.empty(size) for size in (1, 2, 3, 4)], torch.ones(rank + 1))
def broadcast_object_list(tensor):
    dist.broadcast(tensor, 0)
broadcast_object_list(torch.ones(2))
"""
    job, _, _ = captured(program)
    alone, _, _ = captured(program, "--inputs", "builtin")
    assert diff(job, alone) == (True, None)


# --- conditions and answers, without a run


def asked(op="all_reduce", inputs=(), outputs=(), group_rank=1, size=4, **more):
    values = {"rank": 10 + group_rank, "group": "7", "members": [10 + i for i in range(size)],
              "group_rank": group_rank, "op": op, "reduce_op": "sum" if "reduce" in op else "none", "root": -1,
              "peer": -1, "tag": 0, "number": 3, "iteration": 2, "description": "mesh_tp", "inputs": list(inputs),
              "outputs": list(outputs)}  # fmt: skip
    return Communication(**values | more)


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ({}, True),
        ({"op": "all_*"}, True),
        ({"op": ("broadcast", "all_reduce")}, True),
        ({"op": "reduce"}, False),
        ({"group": "mesh_t?"}, True),
        ({"group": "7"}, True),
        ({"group": "8"}, False),
        ({"group_size": range(2, 5)}, True),
        ({"group_size": 5}, False),
        ({"number": [1, 2]}, False),
        ({"iteration": 2, "rank": 11}, True),
        ({"rank": (0, 1)}, False),
        ({"dtype": torch.float32}, True),
        ({"dtype": ["int64", "float32"]}, True),
        ({"dtype": "float16"}, False),
        ({"shape": (2, None)}, True),
        ({"shape": (2,)}, False),
        ({"shape": (3, 3)}, False),
        ({"call_site": "*test_inputs.py:* in test_conditions"}, True),
        ({"call_site": "*elsewhere*"}, False),
        ({"when": lambda c: c.tensor.sum() == 6}, True),
        ({"when": lambda c: c.tensor.sum() == 7}, False),
    ],
)
def test_conditions(conditions, fits):
    made = rule("x", **conditions)
    assert take_rules() == [made]
    tensor = torch.ones(2, 3)
    assert made.fits(asked(inputs=[tensor], outputs=[tensor])) is fits


TWO = [torch.tensor([1.0, 2.0]), torch.tensor([30.0, 40.0])]


@pytest.mark.parametrize(
    ("communication", "peers", "result"),
    [
        (asked(inputs=TWO[:1], outputs=TWO[:1]), 10, [[31.0, 32.0]]),
        (asked(inputs=TWO[:1], outputs=TWO[:1], reduce_op="avg"), 9, [[7.0, 7.25]]),
        (asked(inputs=TWO[:1], outputs=TWO[:1], reduce_op="max"), 1.5, [[1.5, 2.0]]),
        (asked(inputs=TWO[:1], outputs=TWO[:1], reduce_op="product"), 2, [[8.0, 16.0]]),
        (asked(inputs=TWO[:1], outputs=TWO[:1], size=2), lambda c, peer, like: like + peer, [[2.0, 4.0]]),
        (asked("broadcast", outputs=TWO[:1], root=0), 5, [[5.0, 5.0]]),
        (asked("broadcast", inputs=TWO[:1], root=1), 5, []),
        (asked("all_gather", inputs=TWO[:1], outputs=[TWO[0]] * 2, size=2), 3, [[3.0, 3.0], [1.0, 2.0]]),
        (asked("reduce_scatter", inputs=TWO, outputs=TWO[:1], size=2), 1, [[31.0, 41.0]]),
        (asked("all_to_all", inputs=TWO, outputs=TWO, size=2), 1, [[1.0, 1.0], [30.0, 40.0]]),
        (asked("gather", inputs=TWO[:1], outputs=[TWO[0]] * 2, size=2, root=1), 0, [[0.0, 0.0], [1.0, 2.0]]),
        (asked("scatter", outputs=TWO[:1], root=0), 4, [[4.0, 4.0]]),
        (asked("recv", outputs=TWO[:1], peer=2), 6, [[6.0, 6.0]]),
        (asked("send", inputs=TWO[:1], peer=2), 6, []),
        (asked("barrier"), 6, []),
        (asked(inputs=TWO[:1], outputs=TWO[:1], size=1, group_rank=0), 5, [[1.0, 2.0]]),
    ],
    ids=lambda value: value.op if isinstance(value, Communication) else "",
)
def test_what_peers_put_in_gives_what_the_operation_makes_of_it(communication, peers, result):
    made = rule("x").peers(peers)
    take_rules()
    assert [tensor.tolist() for tensor in made.answer(communication)] == result


def test_random_peers_differ_and_are_the_same_in_every_run():
    tensor = torch.zeros(8, dtype=torch.int64)
    communication = asked("all_gather", inputs=[tensor], outputs=[tensor] * 4)
    draw = generators.integers(5, 9)
    first, second = (draw(communication, peer, tensor) for peer in (0, 2))
    assert first.min() >= 5 and first.max() < 9 and not torch.equal(first, second)
    assert not torch.equal(first, draw(communication, 0, tensor))  # another tensor of the same communication
    again = asked("all_gather", inputs=[tensor], outputs=[tensor] * 4)
    assert torch.equal(first, draw(again, 0, tensor))
    assert not torch.equal(first, draw(asked("all_gather", number=4), 0, tensor))


@pytest.mark.parametrize(
    ("dtype", "reduce_op"),
    [
        *((dtype, "sum") for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.complex64, torch.float8_e4m3fn)),
        *((dtype, "max") for dtype in (torch.bool, torch.uint8, torch.bfloat16)),
        *((dtype, op) for dtype in (torch.bool, torch.int32) for op in ("bit_or", "bit_xor", "product")),
        *((dtype, op) for dtype in (torch.int64, torch.int32, torch.uint8) for op in ("avg", "sum")),
        (torch.float32, "avg"),
    ],
)
@pytest.mark.parametrize("numbers", [([0, 1, 1, 0], [1, 1, 0, 0]), ([-7, -1, 200, 2**31 - 1], [0, -3, 200, 2**31 - 1])])
def test_peers_that_are_alike_are_reduced_as_if_each_were_asked(dtype, reduce_op, numbers):
    mine, other = (torch.tensor(row).to(dtype) for row in numbers)
    communication = asked(inputs=[mine], outputs=[mine], reduce_op=reduce_op)
    at_once = communication.result(lambda peer: [other], same=True)
    one_by_one = communication.result(lambda peer: [other], same=False)
    assert torch.equal(at_once[0].view(torch.uint8), one_by_one[0].view(torch.uint8))


def test_a_rank_that_receives_by_default():
    whole, real = torch.full((3,), 7), torch.full((3,), 7.0)
    assert builtin.default(asked("broadcast", outputs=[whole], root=0))[0].tolist() == [7, 7, 7]
    assert builtin.default(asked("recv", outputs=[whole], peer=0))[0].tolist() == [0, 0, 0]
    drawn = builtin.default(asked("recv", outputs=[real], peer=0))[0]
    assert drawn.dtype == torch.float32 and len(drawn.unique()) == 3
