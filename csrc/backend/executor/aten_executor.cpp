#include "backend/executor/aten_executor.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backend/executor/element_types.hpp"

namespace prism {
namespace {

// Elements per chunk: accumulator (up to 16 bytes each) and one converted operand together stay within a 1 MiB L2.
constexpr std::size_t kChunk = 32 * 1024;

// How one element type is reduced: its bytes are read as `view`, accumulated in `accumulate`.
struct Plan {
  at::ScalarType view, accumulate;
  ReduceOp op;
};

std::optional<Plan> plan(DType dtype, ReduceOp op) {
  const auto type = scalar_type(dtype);
  if (type == at::ScalarType::Undefined || op == ReduceOp::kNone) return std::nullopt;
  const bool bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  const bool ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
  switch (dtype) {
    case DType::kBool:
      if (op == ReduceOp::kAvg) return std::nullopt;
      if (op == ReduceOp::kSum || op == ReduceOp::kMax) op = ReduceOp::kBitOr;
      if (op == ReduceOp::kProduct || op == ReduceOp::kMin) op = ReduceOp::kBitAnd;
      return Plan{type, type, op};
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      if (bitwise) return std::nullopt;
      return Plan{type, at::kFloat, op};
    case DType::kFloat32:
      if (bitwise) return std::nullopt;
      return Plan{type, ordered ? at::kFloat : at::kDouble, op};
    case DType::kFloat64:
      if (bitwise) return std::nullopt;
      return Plan{type, type, op};
    case DType::kComplex64:
    case DType::kComplex128:
      if (bitwise || ordered) return std::nullopt;
      return Plan{type, at::kComplexDouble, op};
    // ATen has no sum of these; of n-bit integers that wrap around it is the signed type's.
    case DType::kUInt16:
      if (op == ReduceOp::kAvg) return Plan{type, at::kLong, op};
      return Plan{op == ReduceOp::kSum ? at::kShort : type, op == ReduceOp::kSum ? at::kShort : type, op};
    case DType::kUInt32:
      if (op == ReduceOp::kAvg) return Plan{type, at::kLong, op};
      return Plan{op == ReduceOp::kSum ? at::kInt : type, op == ReduceOp::kSum ? at::kInt : type, op};
    case DType::kUInt64:
      if (op == ReduceOp::kAvg) return std::nullopt;
      return Plan{op == ReduceOp::kSum ? at::kLong : type, op == ReduceOp::kSum ? at::kLong : type, op};
    default:
      return Plan{type, type, op};
  }
}

void combine(ReduceOp op, at::Tensor& total, const at::Tensor& next) {
  switch (op) {
    case ReduceOp::kProduct:
      total.mul_(next);
      break;
    case ReduceOp::kMin:
      at::minimum_out(total, total, next);
      break;
    case ReduceOp::kMax:
      at::maximum_out(total, total, next);
      break;
    case ReduceOp::kBitAnd:
      total.bitwise_and_(next);
      break;
    case ReduceOp::kBitOr:
      total.bitwise_or_(next);
      break;
    case ReduceOp::kBitXor:
      total.bitwise_xor_(next);
      break;
    default:
      total.add_(next);
  }
}

void reduce_piece(const Plan& plan, std::size_t element_size, const ReducePiece& piece) {
  const auto chunk_of = [&](const std::byte* bytes, std::size_t first, std::size_t count) {
    return at::from_blob(const_cast<std::byte*>(bytes) + first * element_size, {static_cast<std::int64_t>(count)},
                         at::TensorOptions().dtype(plan.view));
  };
  const auto part_of = [&](std::size_t first, std::size_t count) {
    return at::from_blob(piece.part + first * c10::elementSize(plan.accumulate), {static_cast<std::int64_t>(count)},
                         at::TensorOptions().dtype(plan.accumulate));
  };
  const bool own_type = plan.view == plan.accumulate;
  for (std::size_t first = 0; first < piece.numel; first += kChunk) {
    const std::size_t count = std::min(kChunk, piece.numel - first);
    const auto output = chunk_of(piece.output, first, count);
    auto total = own_type ? output : at::empty({static_cast<std::int64_t>(count)}, plan.accumulate);
    at::Tensor part;  // while it has no member yet: undefined
    if (piece.initial != nullptr)
      total.copy_(at::from_blob(const_cast<std::byte*>(piece.initial) + first * c10::elementSize(plan.accumulate),
                                {static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(plan.accumulate)));
    for (std::size_t member = 0; member < piece.inputs.size(); ++member) {
      auto next = chunk_of(piece.inputs[member], first, count);
      if (!own_type) next = next.to(plan.accumulate);
      if (member == 0 && piece.initial == nullptr)
        total.copy_(next);
      else
        combine(plan.op, total, next);
      if (piece.part == nullptr || piece.in_part[member] == 0) continue;
      if (part.defined()) {
        combine(plan.op, part, next);
      } else {
        part = part_of(first, count);
        part.copy_(next);
      }
    }
    if (plan.op == ReduceOp::kAvg) {
      const auto members = static_cast<std::int64_t>(piece.members > 0 ? piece.members : piece.inputs.size());
      if (at::isIntegralType(plan.accumulate, /*includeBool=*/false))
        total.div_(members, "trunc");
      else
        total.div_(members);
    }
    if (!own_type) output.copy_(total);
  }
}

}  // namespace

DType AtenExecutor::accumulation_type(DType dtype, ReduceOp op) const {
  const auto how = plan(dtype, op);
  if (!how) return DType::kNone;
  return how->view == how->accumulate ? dtype : dtype_of(how->accumulate);
}

Result<void> AtenExecutor::reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) {
  const auto how = plan(dtype, op);
  if (!how)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("reduction '{}' is not defined for {} tensors", name(op), name(dtype))};
  const c10::InferenceMode no_autograd;
  try {
    for (const auto& piece : pieces)
      if (!piece.inputs.empty()) reduce_piece(*how, element_size(dtype), piece);
  } catch (const std::exception& failure) {
    return Error{ErrorCode::kInternal,
                 fmt::format("reduction '{}' of {} tensors failed: {}", name(op), name(dtype), failure.what())};
  }
  return {};
}

void AtenExecutor::make_up(DType dtype, std::span<std::byte> bytes) {
  const auto type = scalar_type(dtype);
  if (bytes.empty() || type == at::ScalarType::Undefined || !at::isFloatingType(type)) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return;
  }
  const c10::InferenceMode no_autograd;
  auto generator = at::detail::createCPUGenerator(1);
  const auto numbers = at::randn({1 << 14}, generator, at::TensorOptions().dtype(at::kFloat)).to(type);
  const auto* source = static_cast<const std::byte*>(numbers.const_data_ptr());
  for (std::size_t first = 0; first < bytes.size(); first += numbers.nbytes())
    std::copy_n(source, std::min(numbers.nbytes(), bytes.size() - first),
                bytes.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace prism
