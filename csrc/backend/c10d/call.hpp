// One c10d operation as one member issues it, before a route decides what becomes of it.
#pragma once
#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary.hpp"

namespace prism {

// A process group as its member sees it. `key` is unique per group in the job, also after destroy and re-init.
struct GroupInfo {
  std::string backend;  // the name the program asked for
  std::string key;
  int rank = 0;                       // group rank of this process
  std::vector<std::int32_t> members;  // global ranks in group-rank order
  int size() const { return static_cast<int>(members.size()); }
};

// Where one tensor stands for a block per member: all_gather_into_tensor's outputs, reduce_scatter_tensor's inputs
// (equal blocks of dimension 0) and all_to_all_single (given rows per member; empty: equal).
enum class Layout : std::uint8_t { kTensors, kBlocksPerMember };

struct Call {
  Op op = Op::kNone;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::vector<at::Tensor> inputs, outputs;  // in the order of RankClient's Operation
  Layout input_layout = Layout::kTensors, output_layout = Layout::kTensors;
  const std::vector<std::int64_t>* input_splits = nullptr;
  const std::vector<std::int64_t>* output_splits = nullptr;
  c10d::ReduceOp reduce_op;
  int root = -1, peer = -1, tag = 0;  // group ranks
  std::optional<at::Device> device;   // barrier: whose queued work comes before it
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
};

}  // namespace prism
