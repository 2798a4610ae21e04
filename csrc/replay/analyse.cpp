#include "replay/analyse.hpp"

#include <algorithm>

#include "replay/critical_path.hpp"
#include "replay/holds.hpp"
#include "replay/joined.hpp"
#include "replay/traffic.hpp"

namespace prism::engine {
namespace {

// [entries] What the rank waited for each communication until its part could start.
std::vector<std::int64_t> waited_by_entry(const Job& job, const Execution& execution) {
  std::vector<std::int64_t> waited(job.entries, 0);
  for (int rank = 0; rank < job.graph->world_size(); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    const ClassView& view = job.view(rank);
    for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
      if (static_cast<NodeKind>(view.node_kind[node]) != NodeKind::kWait) continue;
      const auto wait = split_wait(job, execution, rank, node);
      if (wait.entry != kNone) waited[wait.entry] += wait.waiting_ns;
    }
  }
  return waited;
}

// Ranks that messages join are stages of one pipeline; [world size] by its lowest rank, -1 for a rank without messages.
std::vector<int> pipelines(const Job& job, const Holds& holds) {
  Joined joined(job.ranks.size());
  std::vector<int> pipeline(job.ranks.size(), -1);
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    if (!is_point_to_point(job.op(entry))) continue;
    const int rank = job.entry_rank[entry];
    pipeline[rank] = rank;
    if (const auto other = holds.partner(entry); other != kNone) joined.join(rank, job.entry_rank[other]);
  }
  for (auto& rank : pipeline)
    if (rank >= 0) rank = joined.first(rank);
  return pipeline;
}

// The time in which a stage does nothing because of another stage of its pipeline: it waits until a message can start,
// or until a stage of its pipeline comes last to a collective, or it is done while another is not. With p equal stages,
// m microbatches and messages that take no time that is (p - 1) / m of the time in which the stage computes (Narayanan
// et al., SC'21, section 2.2.1), v times less with v model chunks a stage.
class Bubbles {
 public:
  Bubbles(const Job& job, const Holds& holds, const std::vector<std::int64_t>& waited)
      : job_(job), holds_(holds), waited_(waited), pipeline_(pipelines(job, holds)), bubble_ns_(job.ranks.size(), 0) {}

  std::vector<std::int64_t> run(const Execution& execution) && {
    for (std::uint32_t entry = 0; entry < job_.entries; ++entry)
      if (is_point_to_point(job_.op(entry))) bubble_ns_[job_.entry_rank[entry]] += waited_[entry];
    for (const Collective& collective : job_.collectives) add(collective);
    add_ends(execution);
    return std::move(bubble_ns_);
  }

 private:
  void add(const Collective& collective) {
    const bool all_wait = job_.model.rule(collective.op) == StartRule::kLastMember;
    std::vector<int> last;  // pipelines of those who came last
    std::int64_t last_ns = INT64_MIN;
    for (std::uint32_t m = 0; m < collective.size; ++m) {
      const auto entry = job_.member_entry[collective.member_base + m];
      if (!is_entry(entry) || holds_.arrival_ns(entry) < last_ns) continue;
      if (holds_.arrival_ns(entry) > last_ns) last.clear();
      last_ns = holds_.arrival_ns(entry);
      last.push_back(pipeline_[job_.entry_rank[entry]]);
    }
    std::sort(last.begin(), last.end());
    for (std::uint32_t m = 0; m < collective.size; ++m) {
      const auto entry = job_.member_entry[collective.member_base + m];
      if (!is_entry(entry) || waited_[entry] == 0) continue;
      const int rank = job_.entry_rank[entry], own = pipeline_[rank];
      const bool same = all_wait ? std::binary_search(last.begin(), last.end(), own)
                                 : pipeline_[job_.entry_rank[holds_.holder(entry)]] == own;
      if (own >= 0 && same) bubble_ns_[rank] += waited_[entry];
    }
  }

  void add_ends(const Execution& execution) {
    std::vector<std::int64_t> own(job_.ranks.size(), 0), all(job_.ranks.size(), 0);  // of a rank; of a pipeline
    for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
      const auto& timeline = execution.timelines[rank];
      for (std::uint32_t node = 0; node < timeline.start_ns.size(); ++node)
        own[rank] = std::max(own[rank], timeline.end_ns(node));
      if (pipeline_[rank] >= 0) all[pipeline_[rank]] = std::max(all[pipeline_[rank]], own[rank]);
    }
    for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank)
      if (pipeline_[rank] >= 0) bubble_ns_[rank] += all[pipeline_[rank]] - own[rank];
  }

  const Job& job_;
  const Holds& holds_;
  const std::vector<std::int64_t>& waited_;
  std::vector<int> pipeline_;
  std::vector<std::int64_t> bubble_ns_;  // [world size]
};

// Where somebody never comes nothing ends, or (in a tree) only what can do without.
void add_collective(const Job& job, const Execution& execution, const Holds& holds,
                    const std::vector<std::int64_t>& waited, const Collective& collective,
                    Analysis::Collectives& table) {
  std::uint32_t members = 0, late = kNone;
  std::int64_t last_ns = INT64_MIN, before_ns = INT64_MIN, end_ns = INT64_MIN, waited_ns = 0, bytes = 0;
  for (std::uint32_t m = 0; m < collective.size; ++m) {
    const auto entry = job.member_entry[collective.member_base + m];
    if (!is_entry(entry) || holds.arrival_ns(entry) == INT64_MIN) continue;  // never there for the others
    ++members;
    const int rank = job.entry_rank[entry];
    const auto at = holds.arrival_ns(entry);
    if (at > last_ns || (at == last_ns && rank < job.entry_rank[late])) late = entry;
    before_ns = at >= last_ns ? last_ns : std::max(before_ns, at);
    last_ns = std::max(last_ns, at);
    const auto& timeline = execution.timelines[rank];
    const auto transfer = job.transfer_node(entry);
    if (timeline.duration_ns[transfer] >= 0) end_ns = std::max(end_ns, timeline.end_ns(transfer));
    waited_ns += waited[entry];
    bytes = std::max(bytes, bytes_of(job, entry));
  }
  if (end_ns == INT64_MIN) return;
  const int rank = job.entry_rank[late];
  const auto comm = job.comm_of(late);
  table.group.push_back(collective.group);
  table.members.push_back(members);
  table.seq.push_back(job.view(rank).comm_seq[comm]);
  table.bytes.push_back(bytes);
  table.op.push_back(collective.op);
  table.late_rank.push_back(rank);
  table.late_comm.push_back(static_cast<std::int32_t>(comm));
  table.late_by_ns.push_back(members > 1 ? last_ns - before_ns : 0);
  table.waited_ns.push_back(waited_ns);
  table.start_ns.push_back(last_ns);
  table.end_ns.push_back(end_ns);
}

}  // namespace

void analyse(const Job& job, const Execution& execution, const std::vector<IterationSpan>& iterations,
             ReplayReport& report) {
  const Holds holds(job, execution);
  const auto waited = waited_by_entry(job, execution);
  Analysis& analysis = report.analysis.emplace();
  const CriticalPath critical(job, execution, holds);
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    const auto& [rank, node, begin_ns, end_ns] = iterations[i];
    critical.append(analysis.path, static_cast<int>(i), rank, node, begin_ns, end_ns);
  }
  for (const Collective& collective : job.collectives)
    add_collective(job, execution, holds, waited, collective, analysis.collectives);
  const auto bubble_ns = Bubbles(job, holds, waited).run(execution);
  for (auto& rank : report.ranks) rank.bubble_ns = bubble_ns[rank.rank];
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    auto& parts = analysis.parts.emplace_back();
    if (job.ranks[rank].cls < 0) continue;
    const auto base = static_cast<std::ptrdiff_t>(job.ranks[rank].entry_base);
    const auto end = base + static_cast<std::ptrdiff_t>(job.view(static_cast<int>(rank)).comm_op.size());
    parts.start_ns.assign(execution.transfer_start_ns.begin() + base, execution.transfer_start_ns.begin() + end);
    parts.waited_ns.assign(waited.begin() + base, waited.begin() + end);
  }
}

}  // namespace prism::engine
