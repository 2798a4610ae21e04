#include "backend/c10d/memory_limit.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace prism {
namespace {

std::unique_ptr<CommunicatorMemory> communicators;
int own_rank = 0;
std::function<void(std::int64_t)> told;

std::string in_words(std::int64_t bytes) {
  constexpr std::array<std::pair<int, const char*>, 3> kUnits{{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
  for (const auto& [power, unit] : kUnits)
    if (bytes >= std::int64_t{1} << power)
      return fmt::format("{:.2f} {} ({} bytes)", static_cast<double>(bytes) / static_cast<double>(1LL << power), unit,
                         bytes);
  return fmt::format("{} bytes", bytes);
}

std::string what_there_is(const MemoryInUse& in_use) {
  return fmt::format("Of the limit of {}, {} are allocated, {} held by communicators, and {} free.",
                     in_words(in_use.limit), in_words(in_use.tensors), in_words(in_use.communicators),
                     in_words(std::max<std::int64_t>(0, in_use.limit - in_use.tensors - in_use.communicators)));
}

bool is_nccl(const GroupInfo& group, const Call& call) {
  if (group.backend.starts_with("nccl")) return true;
  for (const auto* tensors : {&call.inputs, &call.outputs})
    for (const auto& tensor : *tensors)
      if (tensor.is_cuda()) return true;
  return false;
}

}  // namespace

void count_communicators(CommunicatorMemory::Options options) {
  own_rank = options.rank;
  communicators = std::make_unique<CommunicatorMemory>(std::move(options));
}

void tell_communicator_memory(std::function<void(std::int64_t)> changed) { told = std::move(changed); }

void expect_room(const Recorder& recorder, std::int64_t bytes) {
  const auto in_use = recorder.memory_in_use();
  if (in_use.limit != kNoMemoryLimit && bytes > in_use.limit - in_use.tensors - in_use.communicators)
    throw_out_of_memory(in_use, bytes);
}

void throw_out_of_memory(const MemoryInUse& in_use, std::int64_t bytes) {
  C10_THROW_ERROR(OutOfMemoryError, fmt::format("rank {} is out of memory. Tried to allocate {}. {}", own_rank,
                                                in_words(bytes), what_there_is(in_use)));
}

void use_communicator(Recorder& recorder, const Call& call, const GroupInfo& group, bool batched) {
  if (!communicators) return;
  const int peer = is_point_to_point(call.op) ? call.peer : call.root;
  const bool is_member = peer >= 0 && peer < group.size();
  std::int64_t wanted = 0;
  const auto take = [&](std::int64_t bytes) {
    wanted = bytes;
    if (told) told(recorder.memory_in_use().communicators + bytes);
    return recorder.communicator_memory(bytes);
  };
  if (communicators->use({.group = group.key,
                          .members = group.members,
                          .op = call.op,
                          .peer = is_member ? group.members[peer] : -1,
                          .batched = batched,
                          .nccl = is_nccl(group, call)},
                         take))
    return;
  C10_THROW_ERROR(
      OutOfMemoryError,
      fmt::format("rank {} is out of memory. With this {} the communicator of group '{}' ({}, {} ranks) takes {}. {}",
                  own_rank, name(call.op), group.key, group.backend, group.size(), in_words(wanted),
                  what_there_is(recorder.memory_in_use())));
}

void drop_communicator(const GroupInfo& group) {
  auto* recorder = Recorder::active();
  if (!communicators || !recorder) return;
  const auto bytes = communicators->drop(group.key);
  if (bytes == 0) return;
  recorder->communicator_memory(-bytes);
  if (told) told(recorder->memory_in_use().communicators);
}

}  // namespace prism
