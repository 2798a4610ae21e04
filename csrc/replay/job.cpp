#include "replay/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace prism::engine {
namespace {

Adjacency adjacency(std::size_t nodes, std::span<const std::uint32_t> from, std::span<const std::uint32_t> to) {
  Adjacency result{std::vector<std::uint32_t>(nodes + 1, 0), std::vector<std::uint32_t>(to.size())};
  for (std::uint32_t node : from) ++result.first[node + 1];
  for (std::size_t i = 0; i < nodes; ++i) result.first[i + 1] += result.first[i];
  std::vector<std::uint32_t> next = result.first;
  for (std::size_t e = 0; e < from.size(); ++e) result.to[next[from[e]]++] = to[e];
  return result;
}

ClassPlan plan_class(const ClassView& view) {
  std::size_t nodes = view.node_kind.size();
  ClassPlan plan;
  plan.in = adjacency(nodes, view.edge_dst, view.edge_src);
  plan.out = adjacency(nodes, view.edge_src, view.edge_dst);
  plan.next_on_lane.assign(nodes, kNone);
  plan.before_on_lane.assign(nodes, kNone);
  plan.lane_first.assign(view.lane_name.size(), kNone);
  plan.transfer_of_comm.assign(view.comm_op.size(), kNone);
  plan.wait_number.assign(nodes, kNone);
  std::vector<std::uint32_t> last(view.lane_name.size(), kNone);
  std::uint32_t waits = 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    if (static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kWait) plan.wait_number[node] = waits++;
    if (static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kTransfer) {
      plan.transfer_of_comm[view.node_comm[node]] = node;
      continue;
    }
    std::uint16_t lane = view.node_lane[node];
    (last[lane] == kNone ? plan.lane_first[lane] : plan.next_on_lane[last[lane]]) = node;
    plan.before_on_lane[node] = last[lane];
    last[lane] = node;
  }
  for (std::uint32_t slot : view.comm_group) plan.queues = std::max(plan.queues, slot + 1);
  std::vector<std::uint32_t> slots, comms;
  for (std::uint32_t c = 0; c < view.comm_op.size(); ++c) {
    const auto op = static_cast<Op>(view.comm_op[c]);
    plan.any_source |= op == Op::kRecv && view.comm_peer[c] < 0;
    if (!is_point_to_point(op)) comms.push_back(c);
  }
  std::stable_sort(comms.begin(), comms.end(), [&](auto a, auto b) { return view.comm_seq[a] < view.comm_seq[b]; });
  for (const auto c : comms) slots.push_back(view.comm_group[c]);
  plan.collectives = adjacency(plan.queues, slots, comms);
  return plan;
}

struct MailboxKey {
  std::uint32_t group;
  std::int32_t destination, tag;
  bool operator==(const MailboxKey&) const = default;
};
struct MailboxHash {
  std::size_t operator()(const MailboxKey& key) const {
    std::uint64_t mixed = (std::uint64_t{key.group} << 32 | static_cast<std::uint32_t>(key.destination)) +
                          0x9e3779b97f4a7c15ull * static_cast<std::uint32_t>(key.tag);
    mixed = (mixed ^ (mixed >> 31)) * 0xbf58476d1ce4e5b9ull;
    return mixed ^ (mixed >> 29);
  }
};

// Numbers the collectives of each group by sequence number, and the mailboxes by (group, destination, tag).
class Matcher {
 public:
  explicit Matcher(Job& job) : job_(job), graph_(*job.graph), groups_(graph_.group_count()) {}

  Result<void> run() {
    job_.meets.resize(job_.entries);
    job_.entry_rank.resize(job_.entries);
    job_.entry_member.resize(job_.entries);
    PRISM_RETURN_IF_ERROR(make_collectives());
    note_members();
    for (int rank = 0; rank < graph_.world_size(); ++rank)
      if (job_.ranks[rank].cls >= 0) PRISM_RETURN_IF_ERROR(match(rank));
    for (const Collective& c : job_.collectives) job_.unmet += c.recorded < c.size;
    return {};
  }

 private:
  struct Group {
    std::int64_t first_seq = INT64_MAX, last_seq = -1;
    std::int64_t entries = 0;                       // of all members
    std::uint32_t base = 0;                         // index of the collective first_seq
    std::map<std::int32_t, std::uint32_t> members;  // rank -> group rank
  };

  Result<void> make_collectives() {
    for (int rank = 0; rank < graph_.world_size(); ++rank) {
      if (job_.ranks[rank].cls < 0) continue;
      const ClassView& view = job_.view(rank);
      for (std::size_t c = 0; c < view.comm_op.size(); ++c) {
        if (is_point_to_point(static_cast<Op>(view.comm_op[c]))) continue;
        Group& group = groups_[graph_.group_of_slot(rank, view.comm_group[c])];
        group.first_seq = std::min(group.first_seq, view.comm_seq[c]);
        group.last_seq = std::max(group.last_seq, view.comm_seq[c]);
        ++group.entries;
      }
    }
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      auto ranks = graph_.group_members(g);
      for (std::uint32_t m = 0; m < ranks.size(); ++m) group.members[ranks[m]] = m;
      group.base = static_cast<std::uint32_t>(job_.collectives.size());
      if (group.last_seq < 0) continue;
      // Each number has an entry somewhere, or numbers are missing.
      const std::int64_t count = group.last_seq - group.first_seq + 1;
      if (count > group.entries)
        return Error{ErrorCode::kCorruptFile,
                     fmt::format("group '{}': collectives are numbered {} to {}, but its members issue only {}",
                                 graph_.group_name(g), group.first_seq, group.last_seq, group.entries)};
      if (job_.member_entry.size() + static_cast<std::uint64_t>(count) * ranks.size() >= kNeverIssued)
        return Error{ErrorCode::kInvalidInput,
                     fmt::format("group '{}': {} collectives of {} members; accepted: fewer than 2^32 - 2 parts in all",
                                 graph_.group_name(g), count, ranks.size())};
      std::uint32_t recorded = 0;
      for (std::int32_t rank : ranks) recorded += graph_.class_of(rank) >= 0;
      for (std::int64_t i = 0; i < count; ++i) {
        job_.collectives.push_back({.group = g,
                                    .member_base = static_cast<std::uint32_t>(job_.member_entry.size()),
                                    .size = static_cast<std::uint32_t>(ranks.size()),
                                    .recorded = recorded});
        for (std::int32_t rank : ranks)
          job_.member_entry.push_back(graph_.class_of(rank) < 0 ? kNotRecorded : kNeverIssued);
      }
    }
    return {};
  }

  Result<void> match(int rank) {
    const ClassView& view = job_.view(rank);
    for (std::uint32_t c = 0; c < view.comm_op.size(); ++c) {
      std::uint32_t entry = job_.ranks[rank].entry_base + c;
      job_.entry_rank[entry] = rank;
      std::uint32_t group = graph_.group_of_slot(rank, view.comm_group[c]);
      if (is_point_to_point(static_cast<Op>(view.comm_op[c])))
        job_.meets[entry] = mailbox(rank, entry, group);
      else
        PRISM_RETURN_IF_ERROR(join(rank, entry, group));
    }
    return {};
  }

  std::uint32_t mailbox(int rank, std::uint32_t entry, std::uint32_t group) {
    std::uint32_t c = job_.comm_of(entry);
    const ClassView& view = job_.view(rank);
    bool sends = static_cast<Op>(view.comm_op[c]) == Op::kSend;
    MailboxKey key{group, sends ? job_.peer(entry) : rank, job_.model.tags ? view.comm_tag[c] : 0};
    const auto [known, is_new] = mailboxes_.try_emplace(key, job_.mailboxes);
    job_.mailboxes += is_new;
    return known->second;
  }

  Result<void> join(int rank, std::uint32_t entry, std::uint32_t g) {
    std::uint32_t c = job_.comm_of(entry);
    const ClassView& view = job_.view(rank);
    const Group& group = groups_[g];
    std::uint32_t index = group.base + static_cast<std::uint32_t>(view.comm_seq[c] - group.first_seq);
    Collective& collective = job_.collectives[index];
    Op op = static_cast<Op>(view.comm_op[c]);
    std::int32_t root = is_rooted(op) ? view.comm_peer[c] : 0;
    auto fail = [&](std::string what) {
      return Error{ErrorCode::kMismatch, fmt::format("collective {} of group '{}' on rank {}: {}", view.comm_seq[c],
                                                     graph_.group_name(g), rank, what)};
    };
    const auto member = job_.own_member[job_.ranks[rank].queue_base + view.comm_group[c]];
    if (member == kNone) return fail("the rank is not a member of the group");
    if (collective.op == Op::kNone) {
      collective.op = op;
      collective.root = root;
    } else if (collective.op != op || collective.root != root) {
      return fail(fmt::format("{} with root {}, while other members issue {} with root {}", name(op), root,
                              name(collective.op), collective.root));
    }
    std::uint32_t& slot = job_.member_entry[collective.member_base + member];
    if (is_entry(slot)) return fail("issued twice");
    slot = entry;
    job_.entry_member[entry] = member;
    job_.meets[entry] = index;
    return {};
  }

  void note_members() {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      const auto ranks = graph_.group_members(g);
      job_.in_graph_of.push_back(static_cast<std::uint32_t>(
          std::count_if(ranks.begin(), ranks.end(), [&](auto rank) { return graph_.class_of(rank) >= 0; })));
    }
    for (int rank = 0; rank < graph_.world_size(); ++rank)
      for (std::uint32_t slot = 0; job_.ranks[rank].cls >= 0 && slot < job_.plan(rank).queues; ++slot) {
        const auto group = graph_.group_of_slot(rank, slot);
        const auto own = groups_[group].members.find(rank);
        job_.group_of.push_back(group);
        job_.own_member.push_back(own == groups_[group].members.end() ? kNone : own->second);
      }
  }

  Job& job_;
  const ExecutionGraph& graph_;
  std::vector<Group> groups_;
  std::unordered_map<MailboxKey, std::uint32_t, MailboxHash> mailboxes_;
};

void forget_waits_and_clocks(Job& job) {
  job.slice_start_ns.resize(job.ranks.size());
  job.slice_duration_ns.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].cls < 0) continue;
    const auto rank = static_cast<int>(r);
    const auto timing = job.timing(rank);
    if (timing.start_ns.empty()) continue;
    const auto& kinds = job.view(rank).node_kind;
    auto &start = job.slice_start_ns[r], &duration = job.slice_duration_ns[r];
    start.assign(timing.start_ns.begin(), timing.start_ns.end());
    const auto own_first = *std::min_element(start.begin(), start.end());
    for (auto& at : start) at -= own_first;
    duration.assign(timing.duration_ns.begin(), timing.duration_ns.end());
    for (std::size_t node = 0; node < duration.size(); ++node)
      if (kinds[node] == static_cast<std::uint8_t>(NodeKind::kWait) ||
          kinds[node] == static_cast<std::uint8_t>(NodeKind::kTransfer))
        duration[node] = 0;
    job.timings[r] = {start, duration};
  }
}

}  // namespace

Result<Job> prepare(const ExecutionGraph& graph) {
  Job job;
  job.graph = &graph;
  job.provenance = provenance_of(graph);
  job.model = progress_model(graph.progress_model());
  for (int c = 0; c < static_cast<int>(graph.class_count()); ++c) {
    job.views.push_back(graph.class_view(c));
    job.classes.push_back(plan_class(job.views.back()));
    job.programs.push_back(compile(job.views.back(), job.classes.back(), nullptr));
  }
  std::uint64_t entries = 0, lanes = 0, queues = 0;
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    RankPlan plan{.cls = graph.class_of(rank),
                  .entry_base = static_cast<std::uint32_t>(entries),
                  .lane_base = static_cast<std::uint32_t>(lanes),
                  .queue_base = static_cast<std::uint32_t>(queues)};
    job.ranks.push_back(plan);
    job.timings.push_back(plan.cls < 0 ? TimingView{} : graph.timing(rank));
    if (plan.cls < 0) continue;
    entries += job.view(rank).comm_op.size();
    lanes += job.view(rank).lane_name.size();
    queues += job.classes[plan.cls].queues;
  }
  if (std::max({entries, lanes, queues}) >= kNeverIssued)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("the graph has {} communications; accepted: fewer than 2^32 - 2", entries)};
  job.entries = static_cast<std::uint32_t>(entries);
  job.lanes = static_cast<std::uint32_t>(lanes);
  job.queues = static_cast<std::uint32_t>(queues);
  PRISM_RETURN_IF_ERROR(Matcher(job).run());
  if (job.provenance.slices) forget_waits_and_clocks(job);
  return job;
}

void forget_entries(Job& job) {
  for (auto* column : {&job.meets, &job.entry_member, &job.member_entry}) *column = {};
  job.entry_rank = {};
  job.collectives = {};
}

}  // namespace prism::engine
