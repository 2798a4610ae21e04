// The communications of one rank, their groups and sequence numbers. Any thread; one short lock.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backend/recorder/recorder.hpp"
#include "graph/builder.hpp"

namespace prism::recorder {

class CommTable {
 public:
  explicit CommTable(int rank) : rank_(rank) {}
  struct Entry {
    RankRecord::Comm comm;
    std::int64_t done_ns = kNotDone;
    bool withdrawn = false;
  };
  static constexpr std::int64_t kNotDone = INT64_MIN;

  std::uint32_t group(const std::string& name, std::span<const std::int32_t> members);
  CommId add(const CommInfo& info);
  void withdraw(CommId comm);                  // it did not happen: what came behind it in its sequence moves up
  void done(CommId comm, std::int64_t at_ns);  // the first call wins; an unknown id is ignored

  std::vector<Entry> entries() const;
  std::vector<RankRecord::Group> groups() const;

 private:
  // The counter of the sequence that a communication belongs to.
  std::int64_t& next(const RankRecord::Comm& comm);

  const int rank_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::vector<RankRecord::Group> groups_;
  std::map<std::string, std::uint32_t> group_ids_;
  std::vector<std::int64_t> next_collective_;                                    // [groups]
  using MessageKey = std::tuple<std::uint32_t, std::int32_t, std::int32_t, Op>;  // group, peer, tag, direction
  std::map<MessageKey, std::int64_t> next_message_;
};

}  // namespace prism::recorder
