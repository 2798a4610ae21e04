// Between torch's tensors and the vocabulary: reductions, blocks per member, plain bytes.
#pragma once
#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/c10d/call.hpp"
#include "backend/executor/element_types.hpp"
#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism {

// kNone for what we do not know; PREMUL_SUM is the sum of scaled_inputs().
ReduceOp reduce_op_of(const c10d::ReduceOp& op);
// What a member puts into the sum: itself, or times its factor for premul_sum.
std::vector<at::Tensor> scaled_inputs(const c10d::ReduceOp& op, std::vector<at::Tensor> inputs);

std::int64_t total_bytes(const std::vector<at::Tensor>& tensors);

// The call's tensors as RankClient's Operation wants them: one tensor per block.
struct Blocks {
  std::vector<at::Tensor> inputs, outputs;
};
Result<Blocks> blocks_of(const Call& call, int group_size);

// A tensor's elements in order, to and from contiguous memory; any strides, any device. Callable on any thread.
void copy_to_bytes(const at::Tensor& source, std::byte* target);
void copy_from_bytes(const std::byte* source, const at::Tensor& target);
// Until the work queued on the tensors' devices by the calling thread is done.
void synchronize_devices(const std::vector<at::Tensor>& tensors);
void synchronize_device(at::Device device);  // without an index: the present one

}  // namespace prism
