#include "backend/c10d/tensors.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstring>
#include <set>

namespace prism {

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:  // of what scaled_inputs() makes
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    default:
      return ReduceOp::kNone;
  }
}

std::vector<at::Tensor> scaled_inputs(const c10d::ReduceOp& op, std::vector<at::Tensor> inputs) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return inputs;
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor, "a premul_sum without a factor");
  const at::NoGradGuard no_grad;
  for (auto& input : inputs) {
    TORCH_CHECK(input.is_floating_point(), "premul_sum of ", input.scalar_type(), " tensors; accepted: floating point");
    input = factor->tensor_factor.defined() ? input.mul(factor->tensor_factor.to(input.scalar_type()))
                                            : input.mul(factor->double_factor);
  }
  return inputs;
}

std::int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.numel() * tensor.element_size());
  return bytes;
}

namespace {

// Member-major blocks: for each member, its block of every tensor. Without `splits` a tensor is `members` equal runs of
// elements, whatever its shape; with them, that many rows of dimension 0 each.
Result<std::vector<at::Tensor>> split_blocks(const Call& call, const std::vector<at::Tensor>& tensors, int members,
                                             const std::vector<std::int64_t>* splits, const char* which) {
  std::vector<std::vector<at::Tensor>> per_tensor;
  for (const auto& tensor : tensors) {
    std::vector<at::Tensor> blocks;
    if (splits && !splits->empty()) {
      std::int64_t sum = 0;
      for (const auto rows : *splits) sum += rows;
      if (static_cast<int>(splits->size()) != members || sum != tensor.size(0))
        return Error{ErrorCode::kInvalidInput,
                     fmt::format("{}: the {} split sizes add up to {}; accepted are {} sizes that add up to dimension "
                                 "0 of the {}, which is {}",
                                 name(call.op), which, sum, members, which, tensor.size(0))};
      std::int64_t row = 0;
      for (const auto rows : *splits) {
        blocks.push_back(tensor.narrow(0, row, rows));
        row += rows;
      }
    } else {
      if (tensor.numel() % members != 0)
        return Error{ErrorCode::kInvalidInput, fmt::format("{}: the {} has {} elements; accepted is a multiple of the "
                                                           "group's size, {}",
                                                           name(call.op), which, tensor.numel(), members)};
      const bool by_rows = !tensor.is_contiguous();
      if (by_rows && tensor.size(0) % members != 0)
        return Error{ErrorCode::kInvalidInput,
                     fmt::format("{}: the {} is not contiguous and has {} rows; accepted is a multiple of the group's "
                                 "size, {}, or a contiguous tensor",
                                 name(call.op), which, tensor.size(0), members)};
      const auto rows = by_rows ? tensor : tensor.view(-1);
      const auto count = rows.size(0) / members;
      for (int m = 0; m < members; ++m) blocks.push_back(rows.narrow(0, m * count, count));
    }
    per_tensor.push_back(std::move(blocks));
  }
  std::vector<at::Tensor> blocks;
  for (int m = 0; m < members; ++m)
    for (const auto& of_tensor : per_tensor) blocks.push_back(of_tensor[m]);
  return blocks;
}

// Plain memory as a tensor that looks like `like`, contiguous, on the CPU.
at::Tensor over_bytes(const std::byte* bytes, const at::Tensor& like) {
  return at::from_blob(const_cast<std::byte*>(bytes), like.sizes(),
                       at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU));
}

}  // namespace

Result<Blocks> blocks_of(const Call& call, int group_size) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const auto* tensors : {&call.inputs, &call.outputs})
    for (const auto& tensor : *tensors)
      if (tensor.layout() != at::kStrided)
        return Error{ErrorCode::kInvalidInput,
                     "a sparse tensor is not supported under capture; accepted: dense tensors"};
  Blocks blocks{call.inputs, call.outputs};
  if (call.input_layout == Layout::kBlocksPerMember) {
    PRISM_ASSIGN_OR_RETURN(blocks.inputs, split_blocks(call, call.inputs, group_size, call.input_splits, "input"));
  }
  if (call.output_layout == Layout::kBlocksPerMember) {
    PRISM_ASSIGN_OR_RETURN(blocks.outputs, split_blocks(call, call.outputs, group_size, call.output_splits, "output"));
  }
  return blocks;
}

void copy_to_bytes(const at::Tensor& source, std::byte* target) {
  if (source.numel() == 0) return;
  if (source.is_cpu() && source.is_contiguous() && !source.is_conj() && !source.is_neg()) {
    std::memcpy(target, source.const_data_ptr(), source.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  over_bytes(target, source).copy_(source);
}

void copy_from_bytes(const std::byte* source, const at::Tensor& target) {
  if (target.numel() == 0) return;
  if (target.is_cpu() && target.is_contiguous() && !target.is_conj() && !target.is_neg()) {
    std::memcpy(target.mutable_data_ptr(), source, target.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  target.copy_(over_bytes(source, target));
}

void synchronize_devices(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) synchronize_device(tensor.device());
}

void synchronize_device(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  devices.getStream(device.has_index() ? device : devices.getDevice()).synchronize();
}

}  // namespace prism
