// Messages of one group, destination and tag that have been posted and not met yet. First posted, first matched; a
// receive from any source takes the earliest send.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace prism::engine {

struct Message {
  std::uint32_t entry = 0;
  std::int32_t source = -1;  // rank; -1 in a receive from any source
};

class Mailbox {
 public:
  // The other half if it has been posted already; else keeps this one.
  std::optional<Message> post_send(Message message) { return meet(message, receives_, sends_); }
  std::optional<Message> post_receive(Message message) { return meet(message, sends_, receives_); }
  const std::vector<Message>& sends() const { return sends_; }
  const std::vector<Message>& receives() const { return receives_; }

 private:
  static std::optional<Message> meet(Message message, std::vector<Message>& others, std::vector<Message>& mine) {
    for (auto it = others.begin(); it != others.end(); ++it) {
      if (it->source != message.source && it->source != -1 && message.source != -1) continue;
      Message other = *it;
      others.erase(it);
      return other;
    }
    mine.push_back(message);
    return std::nullopt;
  }
  std::vector<Message> sends_, receives_;
};

}  // namespace prism::engine
