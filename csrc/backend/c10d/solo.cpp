#include "backend/c10d/solo.hpp"

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
