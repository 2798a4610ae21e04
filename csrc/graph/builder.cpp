#include "graph/builder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "graph/impl.hpp"

namespace prism {
namespace {

// The structure of one class on its own; the columns of ClassView.
struct Structure {
#define PRISM_FIELD(owner, name) std::vector<typename decltype(ClassView::name)::value_type> name;
  PRISM_CLASS_COLUMNS(PRISM_FIELD)
#undef PRISM_FIELD

  void clear() {
#define PRISM_CLEAR(owner, name) name.clear();
    PRISM_CLASS_COLUMNS(PRISM_CLEAR)
#undef PRISM_CLEAR
  }
  ClassView view() const {
    ClassView v;
#define PRISM_VIEW(owner, name) v.name = name;
    PRISM_CLASS_COLUMNS(PRISM_VIEW)
#undef PRISM_VIEW
    return v;
  }
};

template <typename T>
std::size_t hash_bytes(std::size_t seed, std::span<const T> values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return (seed ^ std::hash<std::string_view>()(bytes)) * 0x9e3779b97f4a7c15u + values.size();
}

std::size_t hash(const ClassView& v) {
  std::size_t seed = 0;
#define PRISM_HASH(owner, name) seed = hash_bytes(seed, v.name);
  PRISM_CLASS_COLUMNS(PRISM_HASH)
#undef PRISM_HASH
  return seed;
}

bool same(const ClassView& a, const ClassView& b) {
#define PRISM_SAME(owner, name) \
  if (!std::ranges::equal(a.name, b.name)) return false;
  PRISM_CLASS_COLUMNS(PRISM_SAME)
#undef PRISM_SAME
  return true;
}

class Interner {
 public:
  std::uint32_t id(std::string_view text) {
    if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
    const auto id = static_cast<std::uint32_t>(strings.size());
    strings.emplace_back(text);
    ids_.emplace(strings.back(), id);
    return id;
  }
  std::vector<std::string> strings;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ids_;
};

// What is kept of one rank.
struct Rank {
  std::vector<std::int64_t> start_ns, duration_ns, memory_bytes, memory_peak;
  std::vector<std::uint32_t> memory_node, groups;
  std::vector<std::int32_t> peers;
};

}  // namespace

struct GraphBuilder::Impl {
  explicit Impl(Options options) : options(std::move(options)) {
    for (auto* offset : {&columns.class_node_offset, &columns.class_comm_offset, &columns.class_edge_offset,
                         &columns.class_mark_offset, &columns.class_lane_offset, &columns.group_member_offset})
      offset->push_back(0);
    if (this->options.world_size > 0) {
      columns.rank_class.assign(this->options.world_size, -1);
      ranks.resize(this->options.world_size);
    }
  }

  Options options;
  bool finished = false;
  ColumnSet<Owned> columns;  // classes and groups grow here; what belongs to ranks is laid out by finish()
  std::vector<Rank> ranks;
  Interner strings;
  std::vector<std::string> group_names;
  std::unordered_map<std::string, std::uint32_t> group_ids;
  std::vector<ClassLimits> limits;  // [classes]
  std::unordered_multimap<std::size_t, std::int32_t> classes_by_hash;
  Structure scratch;

  ClassView class_view(std::size_t cls) const {
    ClassView v;
#define PRISM_CUT(owner, name) \
  v.name = ExecutionGraph::Impl::cut(std::span(columns.name), std::span(columns.class_##owner##_offset), cls);
    PRISM_CLASS_COLUMNS(PRISM_CUT)
#undef PRISM_CUT
    return v;
  }

  // The group's number: a new one, or that of a known group with these members.
  Result<std::uint32_t> group_id(const RankRecord::Group& group, const Where& where) {
    const auto [found, is_new] = group_ids.try_emplace(group.name, static_cast<std::uint32_t>(group_names.size()));
    const auto id = found->second;
    if (!is_new) {
      const auto known = members(id);
      if (!std::ranges::equal(known, group.members))
        return Error{ErrorCode::kMismatch,
                     fmt::format("{}: group '{}' has members [{}], and [{}] for an earlier rank", where.place,
                                 group.name, fmt::join(group.members, ", "), fmt::join(known, ", "))};
    } else {
      columns.group_member.insert(columns.group_member.end(), group.members.begin(), group.members.end());
      columns.group_member_offset.push_back(columns.group_member.size());
      group_names.push_back(group.name);
    }
    return id;
  }

  std::span<const std::int32_t> members(std::uint32_t group) const {
    return ExecutionGraph::Impl::cut(View<std::int32_t>(columns.group_member),
                                     View<std::uint64_t>(columns.group_member_offset), group);
  }

  // That the rank is in all of its groups, and in none twice.
  Result<void> check_groups(int rank, std::span<const std::uint32_t> groups, const Where& where) const {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto known = members(groups[i]);
      const auto own = static_cast<std::size_t>(rank);
      const bool in_place = own < known.size() && known[own] == rank;  // as in groups of all ranks, which are large
      if (!in_place && std::ranges::find(known, rank) == known.end())
        return where.bad(fmt::format("the rank is not among the members [{}] of its group '{}'", fmt::join(known, ", "),
                                     group_names[groups[i]]));
      if (std::ranges::find(groups.first(i), groups[i]) != groups.first(i).end())
        return where.bad(fmt::format("group '{}' occurs twice", group_names[groups[i]]));
    }
    return {};
  }

  // Relabels groups and peers to slots; fills `scratch`, the slots of `rank` and `sizes`.
  Result<void> relabel(const RankRecord& record, Rank& rank, ClassLimits& sizes, const Where& where) {
    Structure& s = scratch;
    s.clear();
    for (const auto& group : record.groups) {
      PRISM_ASSIGN_OR_RETURN(const auto id, group_id(group, where));
      rank.groups.push_back(id);
      sizes.group_sizes.push_back(group.members.size());
    }
    PRISM_RETURN_IF_ERROR(check_groups(record.rank, rank.groups, where));
    for (const auto& lane : record.lanes) s.lane_name.push_back(strings.id(lane));
    for (const auto& node : record.nodes) {
      s.node_kind.push_back(static_cast<std::uint8_t>(node.kind));
      s.node_lane.push_back(node.lane);
      s.node_comm.push_back(node.comm);
      s.node_name.push_back(node.name.empty() ? kNoName : strings.id(node.name));
    }
    std::unordered_map<std::int32_t, std::int32_t> slot_of_peer;
    for (std::size_t i = 0; i < record.comms.size(); ++i) {
      const auto& comm = record.comms[i];
      auto peer = comm.peer;
      if (is_point_to_point(comm.op) && peer != -1) {
        if (peer < 0 || peer >= options.world_size)
          return where.bad("comms.peer", i, peer, fmt::format("-1 to {}", options.world_size - 1));
        const auto [found, is_new] = slot_of_peer.try_emplace(peer, static_cast<std::int32_t>(rank.peers.size()));
        if (is_new) rank.peers.push_back(peer);
        peer = found->second;
      }
      s.comm_op.push_back(static_cast<std::uint8_t>(comm.op));
      s.comm_dtype.push_back(static_cast<std::uint8_t>(comm.dtype));
      s.comm_reduce_op.push_back(static_cast<std::uint8_t>(comm.reduce_op));
      s.comm_flags.push_back(comm.flags);
      s.comm_group.push_back(comm.group);
      s.comm_seq.push_back(comm.seq);
      s.comm_peer.push_back(peer);
      s.comm_tag.push_back(comm.tag);
      s.comm_batch.push_back(comm.batch);
      s.comm_input_bytes.push_back(comm.input_bytes);
      s.comm_output_bytes.push_back(comm.output_bytes);
    }
    for (const auto& edge : record.edges) {
      s.edge_src.push_back(edge.src);
      s.edge_dst.push_back(edge.dst);
    }
    s.mark_node = record.marks;
    sizes.strings = strings.strings.size();
    sizes.peers = rank.peers.size();
    return {};
  }

  // The class of `scratch`: a known one, or a new one after its check.
  Result<std::int32_t> find_class(ClassLimits sizes, const Where& where) {
    const auto view = scratch.view();
    const auto key = hash(view);
    for (auto [at, end] = classes_by_hash.equal_range(key); at != end; ++at) {
      const auto& known = limits[at->second];
      if (known.group_sizes == sizes.group_sizes && known.peers == sizes.peers && same(class_view(at->second), view))
        return at->second;
    }
    PRISM_RETURN_IF_ERROR(check_structure(view, sizes, where));
    const auto cls = static_cast<std::int32_t>(limits.size());
    limits.push_back(std::move(sizes));
    classes_by_hash.emplace(key, cls);
#define PRISM_APPEND(owner, name) columns.name.insert(columns.name.end(), view.name.begin(), view.name.end());
    PRISM_CLASS_COLUMNS(PRISM_APPEND)
#undef PRISM_APPEND
    columns.class_node_offset.push_back(columns.node_kind.size());
    columns.class_comm_offset.push_back(columns.comm_op.size());
    columns.class_edge_offset.push_back(columns.edge_src.size());
    columns.class_mark_offset.push_back(columns.mark_node.size());
    columns.class_lane_offset.push_back(columns.lane_name.size());
    return cls;
  }
};

GraphBuilder::GraphBuilder(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
GraphBuilder::~GraphBuilder() = default;

Result<void> GraphBuilder::add(const RankRecord& record) {
  auto& self = *impl_;
  const Where where{fmt::format("rank {}", record.rank), ErrorCode::kInvalidInput};
  if (record.rank < 0 || record.rank >= self.options.world_size)
    return where.bad(fmt::format("the rank is out of range; accepted: 0 to {}", self.options.world_size - 1));
  if (self.finished) return where.bad("the graph is finished");
  if (self.columns.rank_class[record.rank] != -1) return where.bad("the rank was added before");
  if (record.nodes.size() >= kNoName)
    return where.bad(fmt::format("{} nodes; accepted: fewer than 2^32 - 1", record.nodes.size()));
  Rank rank;
  ClassLimits sizes;
  PRISM_RETURN_IF_ERROR(self.relabel(record, rank, sizes, where));
  PRISM_ASSIGN_OR_RETURN(const auto cls, self.find_class(std::move(sizes), where));
  rank.start_ns.reserve(record.nodes.size());
  rank.duration_ns.reserve(record.nodes.size());
  for (const auto& node : record.nodes) {
    rank.start_ns.push_back(node.start_ns);
    rank.duration_ns.push_back(node.duration_ns);
  }
  for (const auto& step : record.memory) {
    rank.memory_node.push_back(step.node);
    rank.memory_bytes.push_back(step.bytes);
    rank.memory_peak.push_back(step.peak);
  }
  const auto view = self.class_view(cls);
  PRISM_RETURN_IF_ERROR(check_timing(view, {rank.start_ns, rank.duration_ns}, where));
  PRISM_RETURN_IF_ERROR(check_memory(view, {rank.memory_node, rank.memory_bytes, rank.memory_peak}, where));
  self.ranks[record.rank] = std::move(rank);
  self.columns.rank_class[record.rank] = cls;
  return {};
}

Result<std::uint32_t> GraphBuilder::add_group(const RankRecord::Group& group) {
  const auto world = impl_->options.world_size;
  const Where where{fmt::format("group '{}'", group.name), ErrorCode::kInvalidInput};
  for (std::size_t i = 0; i < group.members.size(); ++i)
    if (group.members[i] < 0 || group.members[i] >= world)
      return where.bad("members", i, group.members[i], fmt::format("0 to {}", world - 1));
  return impl_->group_id(group, where);
}

Result<void> GraphBuilder::add_alike(std::int32_t number, std::int32_t like, std::vector<std::uint32_t> groups,
                                     std::vector<std::int32_t> peers) {
  auto& self = *impl_;
  const Where where{fmt::format("rank {}", number), ErrorCode::kInvalidInput};
  const auto world = self.options.world_size;
  if (number < 0 || number >= world)
    return where.bad(fmt::format("the rank is out of range; accepted: 0 to {}", world - 1));
  if (self.finished) return where.bad("the graph is finished");
  if (self.columns.rank_class[number] != -1) return where.bad("the rank was added before");
  if (like < 0 || like >= world || self.columns.rank_class[like] == -1)
    return where.bad(fmt::format("it is like rank {}, which was not added", like));
  for (const auto group : groups)
    if (group >= self.group_names.size()) return where.bad(fmt::format("there is no group {}", group));
  for (std::size_t i = 0; i < peers.size(); ++i)
    if (peers[i] < 0 || peers[i] >= world) return where.bad("peers", i, peers[i], fmt::format("0 to {}", world - 1));
  PRISM_RETURN_IF_ERROR(self.check_groups(number, groups, where));
  const auto cls = self.columns.rank_class[like];
  const auto& limits = self.limits[cls];
  const auto size_of = [&](std::uint32_t group) { return self.members(group).size(); };
  if (!std::ranges::equal(groups, limits.group_sizes, {}, size_of) || peers.size() != limits.peers)
    return where.bad(fmt::format("{} groups and {} peers are not those of rank {}", groups.size(), peers.size(), like));
  self.ranks[number].groups = std::move(groups);
  self.ranks[number].peers = std::move(peers);
  self.columns.rank_class[number] = cls;
  return {};
}

Result<ExecutionGraph> GraphBuilder::finish() {
  auto& self = *impl_;
  if (std::exchange(self.finished, true)) return Error{ErrorCode::kInvalidInput, "the graph is finished"};
  const auto columns = std::make_shared<ColumnSet<Owned>>(std::move(self.columns));
  const auto append = [](auto& column, auto& part) {
    column.insert(column.end(), part.begin(), part.end());
    part = {};
  };
  for (auto* offset : {&columns->rank_timing_offset, &columns->rank_memory_offset, &columns->rank_group_offset,
                       &columns->rank_peer_offset})
    offset->push_back(0);
  for (auto& rank : self.ranks) {
    append(columns->start_ns, rank.start_ns);
    append(columns->duration_ns, rank.duration_ns);
    append(columns->memory_node, rank.memory_node);
    append(columns->memory_bytes, rank.memory_bytes);
    append(columns->memory_peak, rank.memory_peak);
    append(columns->rank_group, rank.groups);
    append(columns->rank_peer, rank.peers);
    columns->rank_timing_offset.push_back(columns->start_ns.size());
    columns->rank_memory_offset.push_back(columns->memory_node.size());
    columns->rank_group_offset.push_back(columns->rank_group.size());
    columns->rank_peer_offset.push_back(columns->rank_peer.size());
  }
  ColumnSet<View> views;
#define PRISM_VIEW(type, name) views.name = columns->name;
  PRISM_COLUMNS(PRISM_VIEW)
#undef PRISM_VIEW
  GraphHeader header{self.options.world_size,    self.options.progress_model,     self.options.timed,
                     self.options.metadata_json, std::move(self.strings.strings), std::move(self.group_names)};
  PRISM_ASSIGN_OR_RETURN(
      auto impl, ExecutionGraph::Impl::create(std::move(header), views, columns, {"graph", ErrorCode::kInvalidInput}));
  impl->trust_all();
  return ExecutionGraph(std::move(impl));
}

}  // namespace prism
