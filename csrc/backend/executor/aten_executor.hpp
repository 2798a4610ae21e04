// AtenExecutor: the coordinator's arithmetic with ATen, on the CPU, in chunks that stay in the cache.
//
// Members are reduced in rank order, so that the answer does not depend on who came first: 16- and 8-bit floats in
// fp32, fp32 in fp64, fp64 and integers in their own type (integers wrap around, as torch's do). Where torch and the
// real backends leave room:
//   AVG divides the sum. Of integers the quotient is truncated toward zero, as NCCL does; bool has no AVG.
//   bool: SUM and MAX are "or", PRODUCT and MIN are "and" (as torch adds and multiplies bools).
//   MIN and MAX hand on NaN, as torch.minimum does.
//   Bitwise operations need integers or bool. Complex numbers have SUM, AVG and PRODUCT.
#pragma once
#include "backend/coordinator/executor.hpp"

namespace prism {

class AtenExecutor : public Executor {
 public:
  Result<void> reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) override;
  DType accumulation_type(DType dtype, ReduceOp op) const override;
  void make_up(DType dtype, std::span<std::byte> bytes) override;
};

}  // namespace prism
