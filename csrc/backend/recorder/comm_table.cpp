#include "backend/recorder/comm_table.hpp"

namespace prism::recorder {

std::uint32_t CommTable::group(const std::string& name, std::span<const std::int32_t> members) {
  std::scoped_lock lock(mutex_);
  auto [it, added] = group_ids_.try_emplace(name, static_cast<std::uint32_t>(groups_.size()));
  if (added) {
    groups_.push_back({name, {members.begin(), members.end()}});
    next_collective_.push_back(0);
  }
  return it->second;
}

CommId CommTable::add(const CommInfo& info) {
  std::scoped_lock lock(mutex_);
  if (info.group >= groups_.size()) return kNoComm;
  const std::vector<std::int32_t>& members = groups_[info.group].members;
  bool root = is_rooted(info.op) && info.peer >= 0 && static_cast<std::size_t>(info.peer) < members.size() &&
              members[info.peer] == rank_;
  entries_.push_back({{.op = info.op,
                       .dtype = info.dtype,
                       .reduce_op = info.reduce_op,
                       .flags = static_cast<std::uint8_t>((info.async ? kCommAsync : 0) | (root ? kCommIsRoot : 0)),
                       .group = info.group,
                       .peer = info.peer,
                       .tag = info.tag,
                       .batch = info.batch,
                       .input_bytes = info.input_bytes,
                       .output_bytes = info.output_bytes}});
  entries_.back().comm.seq = next(entries_.back().comm)++;
  return static_cast<CommId>(entries_.size() - 1);
}

std::int64_t& CommTable::next(const RankRecord::Comm& comm) {
  if (is_point_to_point(comm.op)) return next_message_[{comm.group, comm.peer, comm.tag, comm.op}];
  return next_collective_[comm.group];
}

void CommTable::withdraw(CommId comm) {
  std::scoped_lock lock(mutex_);
  if (comm < 0 || static_cast<std::size_t>(comm) >= entries_.size() || entries_[comm].withdrawn) return;
  entries_[comm].withdrawn = true;
  std::int64_t& counter = next(entries_[comm].comm);
  for (auto later = static_cast<std::size_t>(comm) + 1; later < entries_.size(); ++later)
    if (&next(entries_[later].comm) == &counter) --entries_[later].comm.seq;
  --counter;
}

void CommTable::done(CommId comm, std::int64_t at_ns) {
  std::scoped_lock lock(mutex_);
  if (comm < 0 || static_cast<std::size_t>(comm) >= entries_.size()) return;
  Entry& entry = entries_[comm];
  if (entry.done_ns == kNotDone) entry.done_ns = at_ns;
}

std::vector<CommTable::Entry> CommTable::entries() const {
  std::scoped_lock lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

std::vector<RankRecord::Group> CommTable::groups() const {
  std::scoped_lock lock(mutex_);
  return groups_;
}

}  // namespace prism::recorder
