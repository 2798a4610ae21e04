#include "backend/c10d/solo.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <algorithm>
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

namespace {

// Standard normal numbers, the same in every run, whatever the program draws.
void make_up(const at::Tensor& output) {
  static const at::Tensor numbers = [] {
    auto generator = at::detail::createCPUGenerator(1);
    return at::randn({1 << 16}, generator, at::TensorOptions().dtype(at::kFloat));
  }();
  const auto flat = output.is_contiguous() ? output.view({-1}) : at::empty(output.sizes(), output.options()).view({-1});
  for (std::int64_t first = 0; first < flat.numel(); first += numbers.numel()) {
    const auto count = std::min(numbers.numel(), flat.numel() - first);
    flat.narrow(0, first, count).copy_(numbers.narrow(0, 0, count));
  }
  if (!output.is_contiguous()) output.copy_(flat.view(output.sizes()));
}

void put_own(const at::Tensor& to, const at::Tensor& from) {
  if (to.data_ptr() == from.data_ptr()) return;
  if (to.numel() == from.numel())
    to.copy_(from.reshape(to.sizes()));
  else
    make_up(to);
}

}  // namespace

// Of reductions this rank's own part comes out; what is gathered is its own everywhere; a root's broadcast leaves what
// is in the buffer; what else is received is made up. Nothing of it is zero, by which programs divide.
bool answer_quickly(Op op, int group_rank, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs) {
  if (!chosen->quick || op == Op::kBarrier) return false;
  for (const auto* tensors : {&inputs, &outputs})
    for (const auto& tensor : *tensors)
      if (!tensor.is_floating_point() && !tensor.is_complex()) return false;
  ++answers;
  const NotOfProgram answering;
  const at::NoGradGuard no_grad;
  if (op == Op::kBroadcast) return true;
  if (inputs.empty()) {
    for (const auto& output : outputs) make_up(output);
    return true;
  }
  const auto own = static_cast<std::size_t>(group_rank);
  const auto blocks = outputs.size() > inputs.size() ? outputs.size() / inputs.size() : 1;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (op == Op::kAllToAll || op == Op::kAllToAllSingle)
      put_own(outputs[i], inputs[own]);
    else if (inputs.size() > outputs.size())  // reduce_scatter, the root's scatter: blocks of one member follow
      put_own(outputs[i], inputs[own * outputs.size() + i]);
    else
      put_own(outputs[i], inputs[blocks > 1 ? i % inputs.size() : i]);
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
