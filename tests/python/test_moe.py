"""The mock router: tokens go to experts in the requested shares, to the token, in layers that know nothing of it."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from prismllm import moe


def routed(layer_logits, top_k):
    """Tokens per expert, as a layer finds them."""
    return torch.bincount(layer_logits.softmax(-1).topk(top_k).indices.flatten(), minlength=layer_logits.shape[-1])


# --- shares in whole tokens


@given(st.data())
def test_counts_add_up_and_are_the_shares_to_less_than_a_token(data):
    shares = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any))
    top_k = data.draw(st.integers(1, len(shares)))
    tokens = data.draw(st.integers(1, 60))
    counts = moe.counts_of(shares, tokens, top_k)
    assert sum(counts) == tokens * top_k and max(counts) <= tokens
    exact = [share * tokens * top_k / sum(shares) for share in shares]
    if max(exact) <= tokens:  # else a token would have to choose an expert twice
        assert all(abs(count - wanted) < 1 for count, wanted in zip(counts, exact, strict=True))


@given(st.data())
def test_every_token_gets_different_experts_and_every_expert_its_count(data):
    shares = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
    top_k = data.draw(st.integers(1, len(shares)))
    tokens = data.draw(st.integers(1, 40))
    counts = moe.counts_of(shares, tokens, top_k)
    choices = moe.assigned(counts, tokens, top_k)
    assert len(choices) == tokens and all(len(set(one)) == top_k for one in choices)
    assert [sum(expert in one for one in choices) for expert in range(len(shares))] == counts


def test_exact_shares_stay_exact():
    assert moe.counts_of([0.5, 0.25, 0.125, 0.125], 64) == [32, 16, 8, 8]
    assert moe.counts_of([3, 1], 2) == [2, 0]  # 1.5 and 0.5: the first of equal remainders
    assert moe.counts_of([1, 1, 1], 10) == [4, 3, 3]
    assert moe.counts_of([10, 1, 1], 12, top_k=2) == [12, 6, 6]  # no token chooses an expert twice


def test_a_capacity_is_kept_and_what_is_too_much_goes_to_the_others_in_their_shares():
    assert moe.counts_of([8, 2, 1, 1], 24, capacity=10) == [10, 7, 4, 3]
    assert moe.counts_of([1, 0, 0], 9, capacity=3) == [3, 3, 3]
    with pytest.raises(ValueError, match="12 choices of 3 experts, each at most 3; accepted: at most 9 choices"):
        moe.counts_of([1, 1, 1], 12, capacity=3)
    with pytest.raises(ValueError, match="of at most 2 a token"):
        moe.counts_of([1, 1], 4, top_k=3)
    assert moe.dropped([12, 3, 7], 7) == [5, 0, 0]


def test_skewed_shares_reach_their_minimum_and_maximum():
    rows = moe.skewed(8, 0.05, 0.3, steps=5)
    for row in rows:
        assert min(row) == 0.05 and max(row) == 0.3 and abs(sum(row) - 1) < 1e-12
        assert sorted(row)[1:-1] == pytest.approx([0.65 / 6] * 6)
    assert len({tuple(row) for row in rows}) > 1 and rows == moe.skewed(8, 0.05, 0.3, steps=5)
    assert sorted(moe.skewed(2, 0.25, 0.75)[0]) == [0.25, 0.75]


@pytest.mark.parametrize("shares", [(4, 0.3, 0.5), (4, 0.0, 0.2), (3, 0.5, 0.4), (2, 0.4, 0.5), (0, 0, 1), (4, -1, 1)])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(ValueError, match="accepted"):
        moe.skewed(*shares)


def test_histograms_are_read_and_checked(tmp_path):
    (tmp_path / "h.json").write_text(json.dumps([[3, 1], [0, 4]]))
    assert moe.recorded(tmp_path / "h.json") == [[3, 1], [0, 4]]
    for bad in ([], [[1, 2], [3]], [[0, 0]], [[-1, 2]]):
        with pytest.raises(ValueError, match="accepted"):
            moe.recorded(bad)


# --- in layers


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_a_linear_router_gives_the_requested_shares_step_by_step(top_k):
    model = nn.Sequential(nn.Linear(16, 16), nn.ModuleDict({"router": nn.Linear(16, 5)})["router"])
    histograms = [[40, 10, 5, 5, 4], [1, 1, 1, 1, 60]]
    assert moe.wrap(model, "1", moe.recorded(histograms), top_k) == ["1"]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = None
    for _ in range(4):
        x = torch.randn(4, 16, 16)
        logits, again = model(x), checkpoint(model, x, use_reentrant=False)
        again.sum().backward()  # computes it a third time
        counts = routed(logits.flatten(0, 1), top_k).tolist()
        assert routed(again.flatten(0, 1), top_k).tolist() == counts  # all of one optimizer step
        rows = [moe.counts_of(row, 64, top_k) for row in histograms]
        first = rows.index(counts) if first is None else 1 - first
        assert counts == rows[first]
        optimizer.step()


def test_values_that_are_no_numbers_do_not_spoil_the_shares():
    router = nn.ModuleDict({"r": nn.Identity()})
    moe.wrap(router, "r", [[1, 1, 8]], top_k=1)
    spoilt = torch.randn(10, 3)
    spoilt[:5] = float("inf")
    spoilt[5:7] = float("nan")
    assert routed(router["r"](spoilt), 1).tolist() == [1, 1, 8]


def test_the_gradient_of_the_router_is_the_one_that_it_had():
    router, x = nn.Linear(4, 3), torch.randn(6, 4)
    router(x).sum().backward()
    before = router.weight.grad.clone()
    router.weight.grad = None
    moe.wrap(nn.ModuleDict({"r": router}), "r", [[1, 1, 1]], top_k=1)
    router(x).sum().backward()
    assert torch.equal(router.weight.grad, before)


class Indices(nn.Module):
    def forward(self, x):
        scores = x[:, :4].softmax(-1)
        return scores, scores.topk(2).indices


def test_a_router_that_gives_scores_and_indices_gives_both_alike():
    model = nn.ModuleDict({"router": Indices()})
    moe.wrap(model, "router", [[6, 2, 1, 1]], top_k=2)
    scores, indices = model["router"](torch.randn(10, 8))
    assert torch.equal(scores.topk(2).indices, indices)
    assert torch.bincount(indices.flatten(), minlength=4).tolist() == moe.counts_of([6, 2, 1, 1], 10, 2)


class CapacityLayer(nn.Module):
    """Serves the first `capacity` tokens of each expert and drops the others, as Switch does."""

    def __init__(self, experts, capacity):
        super().__init__()
        self.router, self.capacity = nn.Linear(8, experts), capacity

    def forward(self, x):
        choice = self.router(x).argmax(-1)
        place = torch.nn.functional.one_hot(choice, self.router.out_features).cumsum(0).gather(1, choice[:, None])
        kept = place.squeeze(1) <= self.capacity
        return torch.bincount(choice[kept], minlength=self.router.out_features)


def test_a_layer_drops_what_its_capacity_says():
    shares, tokens, capacity = [[70, 20, 6, 4]], 100, 30
    layer = nn.ModuleDict({"moe": CapacityLayer(4, capacity)})
    moe.wrap(layer, "*.router", shares, top_k=1)
    served = layer["moe"](torch.randn(tokens, 8)).tolist()
    counts = moe.counts_of(shares[0], tokens)
    assert served == [count - lost for count, lost in zip(counts, moe.dropped(counts, capacity), strict=True)]
    assert served == [30, 20, 6, 4]
    within = nn.ModuleDict({"moe": CapacityLayer(4, capacity)})
    moe.wrap(within, "*.router", shares, top_k=1, capacity=capacity)
    assert sum(within["moe"](torch.randn(tokens, 8)).tolist()) == tokens  # nothing is dropped


@pytest.mark.parametrize(("width", "says"), [(5, r"gave \[6, 5\]; accepted: \[..., 3\] for 3 experts")])
def test_a_router_of_another_size_is_refused(width, says):
    model = nn.ModuleDict({"r": nn.Linear(4, width)})
    moe.wrap(model, "r", [[1, 1, 1]], top_k=1)
    with pytest.raises(ValueError, match=says):
        model["r"](torch.randn(6, 4))


# --- in a program that knows nothing of it, under prism

PROGRAM = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, world)
    def forward(self, x):
        choice = self.router(x).argmax(-1)
        return torch.bincount(choice, minlength=world)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
    def forward(self, x):
        return [layer(x) for layer in self.layers]
model = Model()
model.layers[0](torch.randn(40, 8))  # a part before the whole
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    model(torch.randn(40, 8))
    sends = model(torch.randn(40, 8))
    for send in sends:
        dist.all_to_all_single(torch.empty(int(send[rank]) * world, 8), torch.ones(40, 8),
                               [int(send[rank])] * world, send.tolist())
    print("SENDS", rank, [send.tolist() for send in sends])
    optimizer.step()
"""


def test_a_named_module_of_an_unmodified_program_is_mocked_from_a_file_of_rules(run_prism, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "rules.py").write_text(
        "from prismllm import moe\nshares = moe.recorded([[20, 10, 6, 4], [4, 6, 10, 20]])\n"
        "moe.mock_router('*router', shares, 1)\n"
    )
    done = run_prism("capture", "-n", 4, "--slots", 1, "--inputs", "rules.py", "--classes", "none", "program.py")
    assert done.returncode == 0, done.stderr
    sends = [line.partition("SENDS ")[2] for line in done.stdout.splitlines() if "SENDS" in line]
    first, second = [20, 10, 6, 4], [4, 6, 10, 20]
    assert sends == [f"{rank} {[row, row]}" for rank in range(4) for row in (first, second)]


def test_a_name_that_no_module_has_is_an_error(run_prism, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "rules.py").write_text("from prismllm import moe\nmoe.mock_router('*.gate', [[1, 1]], 1)\n")
    done = run_prism("capture", "-n", 2, "--inputs", "rules.py", "-o", "t.prism", "program.py")
    assert done.returncode == 2 and "mock_router('*.gate') fits nothing" in done.stderr
    assert "the modules are router, layers.0.router, layers.1.router, layers" in done.stderr
    assert not (tmp_path / "t.prism").exists()
