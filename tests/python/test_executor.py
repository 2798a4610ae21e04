"""The coordinator's arithmetic against torch's own, on every element type and reduction."""

import functools
import itertools

import collectives
import pytest
import torch

from prismllm import _c10d

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FOLDS = {op: fold for op, fold in collectives.FOLDS.items() if op != "avg"}
# More than two chunks of 32 Ki elements, and not a multiple of them.
SIZES = [0, 1, 7, 32 * 1024, 70_001]


def members(dtype, size, count=3):
    generator = torch.Generator().manual_seed(size * 31 + count)
    if dtype is torch.bool:
        return [torch.randint(0, 2, (size,), generator=generator).bool() for _ in range(count)]
    if dtype.is_floating_point:
        return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]
    info = torch.iinfo(dtype)
    return [torch.randint(info.min, info.max, (size,), generator=generator, dtype=dtype) for _ in range(count)]


def same(left, right):
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "op"), list(itertools.product(INTEGERS, FOLDS)))
def test_integers_are_exact_and_wrap_around_as_torchs_do(dtype, op, size):
    inputs = members(dtype, size)
    assert same(_c10d.reduce_tensors(inputs, op), functools.reduce(FOLDS[op], inputs))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "op"), list(itertools.product(FLOATS, ["sum", "product", "min", "max"])))
def test_floats_accumulate_in_a_wider_type_in_rank_order(dtype, op, size):
    inputs = members(dtype, size, count=5)
    wide = {torch.float64: torch.float64, torch.float32: torch.float64}.get(dtype, torch.float32)
    expected = functools.reduce(FOLDS[op], [tensor.to(wide) for tensor in inputs]).to(dtype)
    assert same(_c10d.reduce_tensors(inputs, op), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_avg_of_floats_divides_the_wide_sum(dtype):
    inputs = members(dtype, 1000)
    wide = {torch.float64: torch.float64, torch.float32: torch.float64}.get(dtype, torch.float32)
    expected = (inputs[0].to(wide) + inputs[1].to(wide) + inputs[2].to(wide)).div(3).to(dtype)
    assert same(_c10d.reduce_tensors(inputs, "avg"), expected)


def test_avg_of_integers_truncates_toward_zero():
    inputs = [torch.tensor([-7, 7, 1, -1]), torch.tensor([0, 0, 0, 0])]
    assert _c10d.reduce_tensors(inputs, "avg").tolist() == [-3, 3, 0, 0]


def test_the_sum_of_sixteen_bit_values_does_not_lose_the_small_ones():
    # One by one in fp16, 2048 + 1 is 2048 again; in fp32 the 4 ones arrive.
    inputs = [torch.tensor([2048.0]).half()] + [torch.ones(1).half()] * 4
    assert _c10d.reduce_tensors(inputs, "sum").item() == 2052


@pytest.mark.parametrize(
    ("op", "expected"),
    [("sum", 0b1110), ("max", 0b1110), ("bit_or", 0b1110), ("product", 0b1000), ("min", 0b1000), ("bit_xor", 0b0110)],
)
def test_bools_are_added_as_or_and_multiplied_as_and(op, expected):
    left, right = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    bits = [bool(expected >> shift & 1) for shift in (3, 2, 1, 0)]
    assert _c10d.reduce_tensors([left, right], op).tolist() == bits


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_sums_wrap_around_at_their_own_width(dtype):
    top = torch.iinfo(dtype).max
    inputs = [torch.tensor([top, 1], dtype=dtype), torch.tensor([2, 1], dtype=dtype)]
    assert _c10d.reduce_tensors(inputs, "sum").tolist() == [1, 2]
    assert _c10d.reduce_tensors(inputs, "max").tolist() == [top, 1]


def test_nan_is_handed_on_by_min_and_max():
    inputs = [torch.tensor([float("nan"), 1.0]), torch.tensor([0.0, float("nan")])]
    for op in ("min", "max"):
        assert torch.isnan(_c10d.reduce_tensors(inputs, op)).all()


def test_one_member_alone_gets_its_own_values():
    tensor = torch.randn(10).bfloat16()
    assert same(_c10d.reduce_tensors([tensor], "sum"), tensor)


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(torch.float32, "bit_and"), (torch.bool, "avg"), (torch.complex64, "max"), (torch.float16, "bit_xor")],
)
def test_reductions_without_a_meaning_are_refused_by_name(dtype, op):
    tensor = torch.ones(2).to(dtype)
    with pytest.raises(ValueError, match=f"'{op}'.*{str(dtype).removeprefix('torch.')}"):
        _c10d.reduce_tensors([tensor, tensor], op)
