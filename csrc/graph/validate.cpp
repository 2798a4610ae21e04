#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "graph/impl.hpp"

namespace prism {
namespace {

// What all members of a collective must agree on.
struct Agreement {
  std::int64_t seq;
  std::uint8_t op, reduce_op;
  std::int32_t root;
  auto operator<=>(const Agreement&) const = default;
};

std::string describe(const Agreement& a) {
  auto text = fmt::format("{} #{}", name(static_cast<Op>(a.op)), a.seq);
  if (a.reduce_op != 0) text += fmt::format(" of {}", name(static_cast<ReduceOp>(a.reduce_op)));
  if (a.root >= 0) text += fmt::format(" with root {}", a.root);
  return text;
}

// Messages of one class that share group slot, peer slot (-1 any), tag and direction.
using MessageKey = std::tuple<std::uint32_t, std::int32_t, std::int32_t, bool>;

struct ClassComms {
  std::vector<std::vector<Agreement>> collectives;  // [group slots], by sequence number
  std::map<MessageKey, std::int64_t> messages;
};

ClassComms summarize(const ClassView& v, std::size_t group_slots, bool ignore_tags) {
  ClassComms result;
  result.collectives.resize(group_slots);
  for (std::size_t i = 0; i < v.comm_op.size(); ++i) {
    const auto op = static_cast<Op>(v.comm_op[i]);
    if (is_point_to_point(op))
      ++result.messages[{v.comm_group[i], v.comm_peer[i], ignore_tags ? 0 : v.comm_tag[i], op == Op::kSend}];
    else
      result.collectives[v.comm_group[i]].push_back({v.comm_seq[i], v.comm_op[i], v.comm_reduce_op[i], v.comm_peer[i]});
  }
  for (auto& list : result.collectives) std::ranges::sort(list);
  return result;
}

class CrossCheck {
 public:
  CrossCheck(const ExecutionGraph& graph, const Where& where) : graph_(graph), where_(where) {
    const bool ignore_tags = graph.progress_model() == "nccl";
    for (std::size_t cls = 0; cls < graph.class_count(); ++cls)
      classes_.push_back(summarize(graph.class_view(static_cast<int>(cls)),
                                   graph.group_slots(graph.impl().first_rank[cls]).size(), ignore_tags));
    for (std::uint32_t g = 0; g < graph.group_count(); ++g)
      whole_.push_back(std::ranges::all_of(graph.group_members(g), [&](int r) { return graph.class_of(r) >= 0; }));
  }

  Result<void> run() {
    std::vector<int> reference(graph_.group_count(), -1);  // first rank that has a slot for the group
    std::vector<const std::vector<Agreement>*> expected(graph_.group_count(), nullptr);
    std::vector<std::size_t> members(graph_.group_count(), 0);
    for (int rank = 0; rank < graph_.world_size(); ++rank) {
      if (graph_.class_of(rank) < 0) continue;
      const auto& comms = classes_[graph_.class_of(rank)];
      const auto slots = graph_.group_slots(rank);
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const auto group = slots[slot];
        ++members[group];
        if (!expected[group]) {
          reference[group] = rank;
          expected[group] = &comms.collectives[slot];
        } else if (whole_[group] && expected[group] != &comms.collectives[slot]) {
          PRISM_RETURN_IF_ERROR(compare(group, reference[group], *expected[group], rank, comms.collectives[slot]));
        }
      }
      PRISM_RETURN_IF_ERROR(count_messages(rank, comms));
    }
    for (std::uint32_t g = 0; g < graph_.group_count(); ++g)
      if (whole_[g] && expected[g] && !expected[g]->empty() && members[g] != graph_.group_members(g).size())
        return where_.bad(fmt::format("group '{}': {} of {} members took part in {}; accepted: all",
                                      graph_.group_name(g), members[g], graph_.group_members(g).size(),
                                      describe(expected[g]->front())));
    return match_messages();
  }

 private:
  Result<void> compare(std::uint32_t group, int a, const std::vector<Agreement>& in_a, int b,
                       const std::vector<Agreement>& in_b) {
    if (in_a == in_b) return {};
    const auto [at_a, at_b] = std::ranges::mismatch(in_a, in_b);
    const auto text = [](const auto& list, auto at) { return at == list.end() ? "nothing more" : describe(*at); };
    return where_.bad(fmt::format("group '{}': rank {} has {} where rank {} has {}; accepted: all members alike",
                                  graph_.group_name(group), b, text(in_b, at_b), a, text(in_a, at_a)));
  }

  Result<void> count_messages(int rank, const ClassComms& comms) {
    for (const auto& [key, count] : comms.messages) {
      const auto& [slot, peer_slot, tag, is_send] = key;
      const auto group = graph_.group_slots(rank)[slot];
      const int peer = peer_slot < 0 ? -1 : graph_.rank_of_peer_slot(rank, peer_slot);
      if (peer >= 0 && !is_member(group, peer))
        return where_.bad(fmt::format("rank {}: {} {} rank {}, which is not in group '{}'", rank,
                                      is_send ? "send" : "recv", is_send ? "to" : "from", peer,
                                      graph_.group_name(group)));
      if (!whole_[group]) continue;
      auto& pairs = traffic_[{group, is_send ? peer : rank, tag}];
      if (is_send)
        pairs[rank].sends += count;
      else
        pairs[peer].receives += count;  // -1: from any source
    }
    return {};
  }

  Result<void> match_messages() {
    for (const auto& [key, pairs] : traffic_) {
      const auto& [group, destination, tag] = key;
      std::int64_t left_over = 0, any_source = 0;
      for (const auto& [source, count] : pairs) {
        if (source == -1) {
          any_source = count.receives;
          continue;
        }
        if (count.receives > count.sends)
          return unmatched(group, source, destination, tag, count.sends, count.receives);
        left_over += count.sends - count.receives;
      }
      if (left_over == any_source) continue;
      for (const auto& [source, count] : pairs)
        if (source == -1 ? left_over < any_source : left_over > any_source && count.sends > count.receives)
          return unmatched(group, source, destination, tag, source == -1 ? left_over : count.sends, count.receives);
    }
    return {};
  }

  Error unmatched(std::uint32_t group, int source, int destination, int tag, std::int64_t sends,
                  std::int64_t receives) {
    return where_.bad(
        fmt::format("group '{}': {} sends and {} receives from {} to rank {} with tag {}; accepted: equal",
                    graph_.group_name(group), sends, receives,
                    source < 0 ? "any source" : fmt::format("rank {}", source), destination, tag));
  }

  bool is_member(std::uint32_t group, int rank) {
    auto [found, is_new] = sorted_members_.try_emplace(group);
    if (is_new) {
      const auto members = graph_.group_members(group);
      found->second.assign(members.begin(), members.end());
      std::ranges::sort(found->second);
    }
    return std::ranges::binary_search(found->second, rank);
  }

  struct Count {
    std::int64_t sends = 0, receives = 0;
  };
  const ExecutionGraph& graph_;
  const Where& where_;
  std::vector<ClassComms> classes_;
  std::vector<bool> whole_;  // [groups] all members were recorded
  std::map<std::tuple<std::uint32_t, int, std::int32_t>, std::map<int, Count>> traffic_;  // (group, to, tag) -> from
  std::unordered_map<std::uint32_t, std::vector<std::int32_t>> sorted_members_;
};

}  // namespace

Result<void> validate(const ExecutionGraph& graph) {
  for (int rank = 0; rank < graph.world_size(); ++rank) PRISM_RETURN_IF_ERROR(graph.check_rank(rank));
  return CrossCheck(graph, graph.impl().where).run();
}

}  // namespace prism
