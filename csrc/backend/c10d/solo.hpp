// Solo capture: a rank runs alone, and what its communications bring comes from rules in the place of its peers.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/c10d/call.hpp"

namespace prism {

// A communication, as the rules see it. Blocks as in Call's operation: see RankClient's Operation.
struct Question {
  const GroupInfo& group;
  Op op = Op::kNone;
  ReduceOp reduce_op = ReduceOp::kNone;
  std::int32_t root = -1, peer = -1, tag = 0;  // group ranks
  std::uint64_t number = 0;                    // collectives: in the group; messages: to or from this peer and tag
  // One tensor per block. Outputs are the program's own memory, as it is before the communication.
  const std::vector<at::Tensor>&inputs, &outputs;
};

struct Reply {
  std::vector<at::Tensor> outputs;  // of the outputs' sizes and types, CPU or device, contiguous or not
  int source = -1;                  // recv from anybody: the group rank that has sent
};

// Called on the program's threads, without Python's lock; what they throw is the call's exception.
struct Answerer {
  std::function<Reply(const Question&)> communication;
  // What a key holds that no rank has set here; nullopt where no rule says it.
  std::function<std::optional<std::vector<std::uint8_t>>(const std::string&)> store_key;
  std::function<void(const std::string&)> absent_key;  // throws: the rank cannot go on without that key
  // Real numbers are not asked about, see answer_quickly() (timing, where the virtual side must not cost anything).
  bool quick = false;
};

// From here on this process's communications are answered by `given`; before the first group is made.
void run_solo(Answerer given);
bool is_solo();
// Whether it is answered without being asked about; its outputs are then what they shall be.
bool answer_quickly(Op op, int group_rank, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs);
// The answers, checked: as many tensors as outputs, of their sizes and types.
Reply ask_rules(const Question& question);
const Answerer& answerer();
// How many communications have been answered: whether a rank that polls the store does anything else.
std::uint64_t answers_given();

}  // namespace prism
