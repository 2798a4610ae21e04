#include "replay/moved_waits.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "replay/matching.hpp"

namespace prism::engine {
namespace {

using Until = OverlapEdit::Until;
constexpr std::uint32_t kNone = 0xffffffffu;

class Rewriter {
 public:
  Rewriter(const ExecutionGraph& graph, RankRecord& record)
      : graph_(graph),
        record_(record),
        view_(graph.class_view(graph.class_of(record.rank))),
        timing_(graph.timing(record.rank)),
        next_(record.nodes.size(), kNone),
        into_(record.nodes.size()),
        first_wait_(record.nodes.size(), kNone),
        transfer_of_(record.comms.size(), kNone) {
    std::vector<std::uint32_t> last(record.lanes.size(), kNone);
    for (std::uint32_t node = 0; node < record.nodes.size(); ++node) {
      if (kind(node) == NodeKind::kTransfer) {
        transfer_of_[static_cast<std::size_t>(record.nodes[node].comm)] = node;
        continue;
      }
      auto& before = last[record.nodes[node].lane];
      if (before != kNone) next_[before] = node;
      before = node;
    }
    for (const auto& [src, dst] : record.edges) {
      into_[dst].push_back(src);
      if (kind(dst) == NodeKind::kWait) first_wait_[src] = std::min(first_wait_[src], dst);
    }
  }

  bool apply(const OverlapEdit& edit) {
    for (std::uint32_t comm = 0; comm < record_.comms.size(); ++comm) {
      const auto transfer = transfer_of_[comm];
      if (is_point_to_point(record_.comms[comm].op) || transfer == kNone) continue;
      if (!matches_communication(edit, graph_, record_.rank, comm)) continue;
      if (edit.iteration && iteration(transfer) != *edit.iteration) continue;
      const auto wait = first_wait_[transfer];
      if (wait == kNone) continue;
      if (edit.until == Until::kIssue)
        wait_at_issue(transfer, wait);
      else
        wait_later(transfer, wait, edit);
    }
    if (inserted_.empty()) return false;
    insert();
    return true;
  }

 private:
  struct Inserted {
    std::uint32_t before;  // of the nodes as they were numbered; their count: behind all
    RankRecord::Node node;
    std::uint32_t transfer;
  };

  NodeKind kind(std::uint32_t node) const { return record_.nodes[node].kind; }
  int iteration(std::uint32_t node) const { return iteration_of(view_, timing_, node); }
  std::int64_t end_of(std::uint32_t node) const {  // not of timing_: waits change here
    return record_.nodes[node].start_ns + record_.nodes[node].duration_ns;
  }
  // When all that a wait covers, `without` apart, had ended; not before its own start.
  std::int64_t covered_ns(std::uint32_t wait, std::uint32_t without) const {
    auto at = record_.nodes[wait].start_ns;
    for (const auto source : into_[wait])
      if (source != without) at = std::max(at, end_of(source));
    return at;
  }
  std::int64_t wake_up_ns(std::uint32_t wait) const {
    return std::max<std::int64_t>(0, end_of(wait) - covered_ns(wait, kNone));
  }

  void wait_at_issue(std::uint32_t transfer, std::uint32_t wait) {
    if (into_[transfer].empty()) return;  // a file may hold transfers that nobody issues
    const auto issue = *std::min_element(into_[transfer].begin(), into_[transfer].end());
    if (next_[issue] == wait) return;  // it does already
    const auto wake_up = wake_up_ns(wait);
    add(issue, transfer, wake_up);
    // The old one stays, for what its lane depends on, and finds the transfer done.
    if (into_[wait].size() == 1) record_.nodes[wait].duration_ns -= std::min(record_.nodes[wait].duration_ns, wake_up);
  }

  void wait_later(std::uint32_t transfer, std::uint32_t wait, const OverlapEdit& edit) {
    const auto own = iteration(wait);
    auto last = wait;
    for (;; last = next_[last]) {
      const auto place = next_[last];
      const bool ended = place == kNone || iteration(place) != own;
      if (ended && edit.until == Until::kSpan) return;
      if (ended) break;
      if (edit.until == Until::kSpan && kind(place) == NodeKind::kCompute && !record_.nodes[place].name.empty() &&
          matches(edit.span, record_.nodes[place].name))
        break;
    }
    if (last == wait) return;  // nothing in between
    const auto wake_up = wake_up_ns(wait);
    add(last, transfer, wake_up);
    moved_.emplace(transfer, wait);
    const auto remaining = covered_ns(wait, transfer);
    std::erase(into_[wait], transfer);
    auto& node = record_.nodes[wait];
    node.duration_ns = remaining - node.start_ns + (into_[wait].empty() ? 0 : wake_up);
  }

  // A wait behind `last`, on its lane; of the record it ended `wake_up` after its transfer.
  void add(std::uint32_t last, std::uint32_t transfer, std::int64_t wake_up) {
    const auto& before = record_.nodes[last];
    const auto next = next_[last];
    auto start = end_of(last);
    if (next != kNone) start = std::clamp(start, before.start_ns, record_.nodes[next].start_ns);
    RankRecord::Node node{.kind = NodeKind::kWait, .lane = before.lane, .comm = record_.nodes[transfer].comm};
    node.start_ns = start;
    node.duration_ns = std::max<std::int64_t>(0, end_of(transfer) - start) + wake_up;
    inserted_.push_back({next != kNone ? next : behind_transfers_of(last), node, transfer});
  }
  // Transfers stand behind what issues them.
  std::uint32_t behind_transfers_of(std::uint32_t node) const {
    auto at = node + 1;
    while (at < record_.nodes.size() && record_.nodes[at].lane == record_.nodes[node].lane &&
           kind(at) == NodeKind::kTransfer)
      ++at;
    return at;
  }

  void insert() {
    std::erase_if(record_.edges, [&](const auto& edge) { return moved_.count({edge.src, edge.dst}) != 0; });
    std::stable_sort(inserted_.begin(), inserted_.end(),
                     [](const Inserted& a, const Inserted& b) { return a.before < b.before; });
    std::vector<RankRecord::Node> nodes;
    std::vector<std::uint32_t> number(record_.nodes.size() + 1), waits;
    auto next = inserted_.begin();
    for (std::uint32_t node = 0; node <= record_.nodes.size(); ++node) {
      for (; next != inserted_.end() && next->before == node; ++next) {
        waits.push_back(static_cast<std::uint32_t>(nodes.size()));
        nodes.push_back(next->node);
      }
      number[node] = static_cast<std::uint32_t>(nodes.size());
      if (node < record_.nodes.size()) nodes.push_back(record_.nodes[node]);
    }
    for (auto& [src, dst] : record_.edges) src = number[src], dst = number[dst];
    for (std::size_t i = 0; i < waits.size(); ++i) record_.edges.push_back({number[inserted_[i].transfer], waits[i]});
    for (auto& mark : record_.marks) mark = number[mark];
    for (auto& step : record_.memory) step.node = number[step.node];
    record_.nodes = std::move(nodes);
  }

  const ExecutionGraph& graph_;
  RankRecord& record_;
  const ClassView& view_;
  const TimingView timing_;
  std::vector<std::uint32_t> next_;                          // [nodes] on the lane, transfers left out
  std::vector<std::vector<std::uint32_t>> into_;             // [nodes] sources of edges
  std::vector<std::uint32_t> first_wait_;                    // [nodes] for it
  std::vector<std::uint32_t> transfer_of_;                   // [comms]
  std::set<std::pair<std::uint32_t, std::uint32_t>> moved_;  // (transfer, wait): edges that go
  std::vector<Inserted> inserted_;
};

}  // namespace

bool move_waits(const ExecutionGraph& graph, RankRecord& record, const OverlapEdit& edit) {
  return Rewriter(graph, record).apply(edit);
}

}  // namespace prism::engine
