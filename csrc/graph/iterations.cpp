#include "graph/iterations.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "graph/repetition.hpp"

namespace prism {
namespace {

enum class Detail { kWaits, kSizes, kFixedSizes };

struct Sequence {
  std::vector<std::uint32_t> tokens, comm;  // comm: of an issue; kNoName for a wait
  std::vector<std::int64_t> weights;
};

// Gradient and activation traffic repeats in iterations; broadcasts, barriers and objects are typical of set-up, where
// they may repeat as well (once a layer, say).
bool is_set_up(Op op) {
  return op == Op::kBroadcast || op == Op::kBarrier || op == Op::kAllGather || op == Op::kGather || op == Op::kScatter;
}
std::int64_t weight(Op op) { return is_set_up(op) ? 1 : 16; }

// Sizes that data decide: expert traffic, pickled objects. Those of gradients and activations are the model's.
bool varies_in_size(Op op) { return is_set_up(op) || op == Op::kAllToAll || op == Op::kAllToAllSingle; }

bool is_optimizer(const RankRecord::Node& node) {
  return node.kind == NodeKind::kCompute && node.name == kOptimizerSpan;
}

bool communicates_on_lane(NodeKind kind) { return kind == NodeKind::kIssue || kind == NodeKind::kWait; }

// The lane with most issues and waits, the first of these.
std::uint16_t busiest_lane(const RankRecord& record) {
  std::vector<std::size_t> busy(record.lanes.size(), 0);
  for (const auto& node : record.nodes)
    if (communicates_on_lane(node.kind)) ++busy[node.lane];
  return static_cast<std::uint16_t>(std::ranges::max_element(busy) - busy.begin());
}

// `steps`: those of the optimizer count, too.
Sequence sequence(const RankRecord& record, Detail detail, bool steps) {
  // Of one lane: how the lanes' times interleave is chance.
  const auto lane = busiest_lane(record);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < record.nodes.size(); ++i) {
    const auto& node = record.nodes[i];
    const bool counts = node.kind == NodeKind::kIssue || (node.kind == NodeKind::kWait && detail == Detail::kWaits);
    if ((node.lane == lane && counts) || (steps && is_optimizer(node))) order.push_back(i);
  }
  using Key = std::tuple<int, int, int, int, int, std::int64_t, int, int, std::int64_t, std::int64_t>;
  std::map<Key, std::uint32_t> ids;
  Sequence result;
  for (const auto index : order) {
    const auto& node = record.nodes[index];
    Key key{is_optimizer(node) ? -2 : -1, node.lane, 0, 0, 0, 0, 0, 0, 0, 0};
    std::int64_t heavy = 0;
    if (node.kind == NodeKind::kIssue) {
      const auto& c = record.comms[node.comm];
      const bool sizes = detail != Detail::kFixedSizes || !varies_in_size(c.op);
      key = {static_cast<int>(c.op),
             node.lane,
             static_cast<int>(c.dtype),
             static_cast<int>(c.reduce_op),
             c.flags,
             c.group,
             c.peer,
             c.tag,
             sizes ? c.input_bytes : 0,
             sizes ? c.output_bytes : 0};
      heavy = weight(c.op);
    }
    result.tokens.push_back(ids.try_emplace(key, static_cast<std::uint32_t>(ids.size())).first->second);
    result.weights.push_back(heavy);
    result.comm.push_back(node.kind == NodeKind::kIssue ? static_cast<std::uint32_t>(node.comm) : kNoName);
  }
  return result;
}

// Where in its first period a repetition is best cut: at the first issue that follows a wait, so that an iteration
// waits for what it issued; else at the first issue. A cut may not cost a period.
std::size_t cut(const Sequence& s, const Repetition& r) {
  const auto spare = (r.end - r.begin) % r.period;
  std::optional<std::size_t> first_issue;
  for (auto i = r.begin; i <= r.begin + spare; ++i) {
    if (s.comm[i] == kNoName) continue;
    if (i == 0 || s.comm[i - 1] == kNoName) return i;
    if (!first_issue) first_issue = i;
  }
  if (first_issue) return *first_issue;
  auto i = r.begin;
  while (i + 1 < r.end && s.comm[i] == kNoName) ++i;
  return i;
}

// Where the period that begins at `at` occurs: in the repetition, and apart from it before and behind, where a
// checkpoint or an evaluation has interrupted the iterations. Ascending, not overlapping. O(n), after Knuth, Morris and
// Pratt.
std::vector<std::size_t> occurrences(std::span<const std::uint32_t> tokens, std::size_t at, const Repetition& r) {
  const auto period = tokens.subspan(at, r.period);
  std::vector<std::size_t> border(period.size(), 0);  // of each prefix: its longest prefix that is also its suffix
  for (std::size_t i = 1, length = 0; i < period.size(); ++i) {
    while (length > 0 && period[i] != period[length]) length = border[length - 1];
    if (period[i] == period[length]) ++length;
    border[i] = length;
  }
  std::vector<std::size_t> found;
  const auto search = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin, matched = 0; i < end; ++i) {
      while (matched > 0 && tokens[i] != period[matched]) matched = border[matched - 1];
      if (tokens[i] == period[matched]) ++matched;
      if (matched < period.size()) continue;
      found.push_back(i + 1 - period.size());
      matched = 0;
    }
  };
  search(0, at);
  const auto repeats = (r.end - at) / r.period;
  for (std::size_t i = 0; i < repeats; ++i) found.push_back(at + i * r.period);
  search(at + repeats * r.period, tokens.size());
  return found;
}

}  // namespace

namespace {

std::vector<std::uint32_t> first_comms(const RankRecord& record, bool steps) {
  Sequence sequences[3];
  std::optional<Repetition> found[3];
  std::int64_t most = 0;
  for (const auto detail : {Detail::kWaits, Detail::kSizes, Detail::kFixedSizes}) {
    const auto i = static_cast<std::size_t>(detail);
    sequences[i] = sequence(record, detail, steps);
    found[i] = heaviest_repetition(sequences[i].tokens, sequences[i].weights);
    if (found[i]) most = std::max(most, found[i]->weight);
  }
  std::vector<std::uint32_t> firsts;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!found[i] || found[i]->weight == 0 || found[i]->weight * 10 < most * 9) continue;
    for (const auto at : occurrences(sequences[i].tokens, cut(sequences[i], *found[i]), *found[i]))
      firsts.push_back(sequences[i].comm[at]);
    break;
  }
  return firsts;
}

}  // namespace

Periods find_periods(const RankRecord& record) {
  Periods periods;
  periods.communicates = !record.comms.empty();
  const auto steps = static_cast<std::size_t>(std::ranges::count_if(record.nodes, is_optimizer));
  // Micro-batches and layers repeat as well, and so do batches of a validation; then the steps tell them from
  // iterations. Some steps may be left out, as gradient scalers do, so that this is not tried first.
  for (const bool with_steps : {false, true}) {
    periods.first_comm = first_comms(record, with_steps);
    const bool too_many = steps > 0 && periods.first_comm.size() >= 2 * steps;
    if (periods.first_comm.size() < 2 || too_many) periods.first_comm.clear();
    if (!too_many || steps < 2) break;
  }
  return periods;
}

void agree_on_iterations(std::vector<Periods>& ranks) {
  std::size_t count = 0;
  for (const auto& rank : ranks)
    if (rank.communicates && (count == 0 || rank.first_comm.size() < count)) {
      count = rank.first_comm.size();
      if (count == 0) break;
    }
  for (auto& rank : ranks) {
    if (count == 0) rank.first_comm.clear();
    if (rank.first_comm.empty()) continue;
    const auto repeats = rank.first_comm.size() / count;
    const auto skip = rank.first_comm.size() - count * repeats;
    for (std::size_t i = 0; i < count; ++i) rank.first_comm[i] = rank.first_comm[skip + i * repeats];
    rank.first_comm.resize(count);
  }
}

std::vector<std::uint32_t> iteration_marks(const RankRecord& record, const Periods& periods) {
  if (periods.first_comm.empty()) return {};
  // The latest communication that a wait waits for; most waits name theirs, those for several have it in their edges.
  std::vector<std::int32_t> latest(record.nodes.size(), -1);
  for (std::size_t i = 0; i < record.nodes.size(); ++i) latest[i] = record.nodes[i].comm;
  for (const auto& edge : record.edges)
    if (record.nodes[edge.dst].kind == NodeKind::kWait)
      latest[edge.dst] = std::max(latest[edge.dst], record.nodes[edge.src].comm);
  const auto lane = busiest_lane(record);
  std::vector<std::uint32_t> marks;
  auto after_last = kNoName;  // first node of the lane after its last communication or step of an optimizer
  for (std::uint32_t i = 0; i < record.nodes.size() && marks.size() < periods.first_comm.size(); ++i) {
    const auto& node = record.nodes[i];
    if (node.lane != lane || node.kind == NodeKind::kTransfer) continue;
    if (after_last == kNoName) after_last = i;
    if (is_optimizer(node)) after_last = kNoName;
    if (!communicates_on_lane(node.kind)) continue;
    if (latest[i] >= static_cast<std::int32_t>(periods.first_comm[marks.size()])) marks.push_back(after_last);
    after_last = kNoName;
  }
  const bool ascending = std::ranges::adjacent_find(marks, std::greater_equal<>()) == marks.end();
  if (!ascending || marks.size() != periods.first_comm.size()) return {};
  return marks;
}

}  // namespace prism
