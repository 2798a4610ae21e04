#include "backend/c10d/solo.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <utility>

#include "backend/c10d/cpu_allocator.hpp"
#include "backend/c10d/recording.hpp"

namespace prism {
namespace {

std::unique_ptr<Answerer> chosen;
std::atomic<std::uint64_t> answers{0};

}  // namespace

void run_solo(Answerer given) {
  chosen = std::make_unique<Answerer>(std::move(given));
  fill_cpu_allocations();
}

bool is_solo() { return chosen != nullptr; }

const Answerer& answerer() { return *chosen; }
std::uint64_t answers_given() { return answers; }

// Own contributions are copied where the outputs are other memory than the inputs. A copy between overlapping memory
// (an input that is a part of its output) is none.
bool answer_quickly(Op op, int group_rank, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs) {
  if (!chosen->quick || op == Op::kBarrier) return false;
  for (const auto* tensors : {&inputs, &outputs})
    for (const auto& tensor : *tensors)
      if (!tensor.is_floating_point() && !tensor.is_complex()) return false;
  ++answers;
  const auto own = static_cast<std::size_t>(group_rank);
  const auto copy = [](const at::Tensor& to, const at::Tensor& from) {
    if (to.data_ptr() != from.data_ptr() && to.numel() == from.numel()) to.copy_(from.view_as(to));
  };
  if (inputs.empty() || outputs.empty()) return true;
  const NotOfProgram answering;
  const at::NoGradGuard no_grad;
  if (op == Op::kAllToAll || op == Op::kAllToAllSingle) {
    copy(outputs[own], inputs[own]);
  } else if (inputs.size() == outputs.size()) {  // reductions
    for (std::size_t i = 0; i < inputs.size(); ++i) copy(outputs[i], inputs[i]);
  } else if (inputs.size() > outputs.size()) {  // reduce_scatter, the root's scatter: blocks of one member follow
    for (std::size_t i = 0; i < outputs.size(); ++i) copy(outputs[i], inputs[own * outputs.size() + i]);
  } else {
    for (std::size_t i = 0; i < inputs.size(); ++i) copy(outputs[own * inputs.size() + i], inputs[i]);
  }
  return true;
}

Reply ask_rules(const Question& question) {
  ++answers;
  const NotOfProgram rules_at_work;
  Reply reply = chosen->communication(question);
  TORCH_CHECK(reply.outputs.size() == question.outputs.size(), name(question.op), ": the rules gave ",
              reply.outputs.size(), " tensors for ", question.outputs.size());
  for (std::size_t i = 0; i < reply.outputs.size(); ++i) {
    const auto &got = reply.outputs[i], &wanted = question.outputs[i];
    TORCH_CHECK(got.numel() == wanted.numel() && got.scalar_type() == wanted.scalar_type(), name(question.op),
                ": the rules gave ", got.sizes(), " ", got.scalar_type(), " for ", wanted.sizes(), " ",
                wanted.scalar_type());
  }
  return reply;
}

}  // namespace prism
