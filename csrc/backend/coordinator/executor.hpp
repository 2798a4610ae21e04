// The seam between the coordinator and whoever does its arithmetic. reduce() is called on the coordinator's executor
// thread only, the others on its loop.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism {

// output[i] = reduce over members m in rank order of inputs[m][i], for i < numel. AVG divides by the number of inputs.
struct ReducePiece {
  std::vector<const std::byte*> inputs;  // in group-rank order
  std::byte* output = nullptr;           // never overlaps an input
  std::size_t numel = 0;
  // Where not null: at the same time, the reduction of the inputs with in_part[m] != 0 alone, in accumulation_type(),
  // not divided for AVG; numel elements. At least one input is in it.
  std::byte* part = nullptr;
  std::span<const std::uint8_t> in_part;
  // Where not null: what other members have put in, reduced in accumulation_type() and not divided; comes first. AVG
  // then divides by `members`.
  const std::byte* initial = nullptr;
  std::size_t members = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Accumulates 16-bit types in fp32 and fp32 in fp64: the answer depends on the inputs alone.
  virtual Result<void> reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) = 0;
  // kNone where the reduction is not defined.
  virtual DType accumulation_type(DType dtype, ReduceOp op) const = 0;
  // Values for what nobody knows: standard normal numbers, zeros where they are whole; the same in every run.
  virtual void make_up(DType, std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }
};

}  // namespace prism
