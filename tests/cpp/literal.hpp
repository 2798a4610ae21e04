// A collective executed literally: every member's part in every step, chunk by chunk, as the schedule says what its
// messages hold. Nothing is known here of what the collective is for.
#pragma once
#include <vector>

#include "catch2.hpp"
#include "simulate/schedule.hpp"

namespace prism::test {

// `has`: [member][chunk], as before the collective; returned as after it. `reduce`: into the first, the second.
template <typename T, typename Reduce>
std::vector<std::vector<T>> execute_literally(const simulate::Schedule& schedule, std::vector<std::vector<T>> has,
                                              Reduce&& reduce) {
  struct Message {
    int to, chunk;
    bool combines;
    T value;
  };
  const int members = schedule.members();
  std::vector<simulate::Send> sends;
  std::vector<Message> messages;
  for (int step = 0; step < schedule.steps(); ++step) {
    messages.clear();
    std::vector<int> balance(static_cast<std::size_t>(members), 0);
    for (int member = 0; member < members; ++member) {
      sends.clear();
      balance[member] -= schedule.part(member, step, sends);
      for (const auto& send : sends) {
        ++balance[send.to];
        REQUIRE((send.chunk >= 0 && send.chunks > 0 && send.chunk + send.chunks <= schedule.chunks()));
        for (int chunk = send.chunk; chunk < send.chunk + send.chunks; ++chunk)
          messages.push_back({send.to, chunk, send.combines, has[member][chunk]});
      }
    }
    REQUIRE(balance == std::vector<int>(static_cast<std::size_t>(members), 0));
    for (auto& [to, chunk, combines, value] : messages)
      if (combines)
        reduce(has[to][chunk], value);
      else
        has[to][chunk] = std::move(value);
  }
  return has;
}

}  // namespace prism::test
