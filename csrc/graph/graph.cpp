#include "graph/graph.hpp"

#include "graph/impl.hpp"

namespace prism {
namespace {

const ClassView kNothing{};

}  // namespace

std::string_view name(NodeKind kind) {
  constexpr std::string_view kNames[] = {"compute", "issue", "transfer", "wait"};
  return kind < NodeKind::kCount ? kNames[static_cast<int>(kind)] : "invalid";
}

Result<std::shared_ptr<const ExecutionGraph::Impl>> ExecutionGraph::Impl::create(GraphHeader header,
                                                                                 ColumnSet<View> columns,
                                                                                 std::shared_ptr<const void> storage,
                                                                                 Where where) {
  PRISM_RETURN_IF_ERROR(check_tables(header, columns, where));
  auto impl = std::make_shared<Impl>();
  impl->header = std::move(header);
  impl->columns = columns;
  impl->storage = std::move(storage);
  impl->where = std::move(where);
  const auto classes = columns.class_node_offset.size() - 1;
  impl->classes.resize(classes);
  for (std::size_t cls = 0; cls < classes; ++cls) {
#define PRISM_CUT(owner, name) impl->classes[cls].name = cut(columns.name, columns.class_##owner##_offset, cls);
    PRISM_CLASS_COLUMNS(PRISM_CUT)
#undef PRISM_CUT
  }
  impl->first_rank.assign(classes, -1);
  impl->first_timed.assign(classes, -1);
  for (int rank = impl->header.world_size - 1; rank >= 0; --rank) {
    if (columns.rank_class[rank] < 0) continue;
    impl->first_rank[columns.rank_class[rank]] = rank;
    if (impl->has_own_times(rank)) impl->first_timed[columns.rank_class[rank]] = rank;
  }
  impl->class_state_ = std::make_unique<std::atomic<std::uint8_t>[]>(classes);
  impl->rank_state_ = std::make_unique<std::atomic<std::uint8_t>[]>(impl->header.world_size);
  return std::shared_ptr<const Impl>(std::move(impl));
}

Result<void> ExecutionGraph::Impl::check_class(int cls) const {
  if (class_state_[cls].load(std::memory_order_acquire) == kGood) return {};
  ClassLimits limits;
  limits.strings = header.strings.size();
  limits.peers = cut(columns.rank_peer, columns.rank_peer_offset, first_rank[cls]).size();
  for (const auto group : cut(columns.rank_group, columns.rank_group_offset, first_rank[cls]))
    limits.group_sizes.push_back(columns.group_member_offset[group + 1] - columns.group_member_offset[group]);
  PRISM_RETURN_IF_ERROR(check_structure(classes[cls], limits, where.in(fmt::format("class {}", cls))));
  class_state_[cls].store(kGood, std::memory_order_release);
  return {};
}

Result<void> ExecutionGraph::Impl::check_rank(int rank) const {
  const auto cls = columns.rank_class[rank];
  if (cls < 0 || rank_state_[rank].load(std::memory_order_acquire) == kGood) return {};
  PRISM_RETURN_IF_ERROR(check_class(cls));
  const auto place = where.in(fmt::format("rank {}", rank));
  PRISM_RETURN_IF_ERROR(check_timing(classes[cls], timing(rank), place));
  PRISM_RETURN_IF_ERROR(check_memory(classes[cls], memory(rank), place));
  rank_state_[rank].store(kGood, std::memory_order_release);
  return {};
}

void ExecutionGraph::Impl::trust_all() const {
  for (std::size_t cls = 0; cls < classes.size(); ++cls) class_state_[cls] = kGood;
  for (int rank = 0; rank < header.world_size; ++rank) rank_state_[rank] = kGood;
}

int ExecutionGraph::Impl::measured(int rank) const {
  const auto cls = columns.rank_class[rank];
  return cls < 0 || has_own_times(rank) || first_timed[cls] < 0 ? rank : first_timed[cls];
}

TimingView ExecutionGraph::Impl::timing(int rank) const {
  rank = measured(rank);
  return {cut(columns.start_ns, columns.rank_timing_offset, rank),
          cut(columns.duration_ns, columns.rank_timing_offset, rank)};
}

MemoryView ExecutionGraph::Impl::memory(int rank) const {
  rank = measured(rank);
  return {cut(columns.memory_node, columns.rank_memory_offset, rank),
          cut(columns.memory_bytes, columns.rank_memory_offset, rank),
          cut(columns.memory_peak, columns.rank_memory_offset, rank)};
}

ExecutionGraph::ExecutionGraph(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ExecutionGraph::~ExecutionGraph() = default;

int ExecutionGraph::world_size() const { return impl_->header.world_size; }
const std::string& ExecutionGraph::metadata_json() const { return impl_->header.metadata_json; }
const std::string& ExecutionGraph::progress_model() const { return impl_->header.progress_model; }
bool ExecutionGraph::timed() const { return impl_->header.timed; }
std::string_view ExecutionGraph::string(std::uint32_t id) const {
  return id < impl_->header.strings.size() ? std::string_view(impl_->header.strings[id]) : std::string_view();
}

std::size_t ExecutionGraph::group_count() const { return impl_->header.group_names.size(); }
std::string_view ExecutionGraph::group_name(std::uint32_t group) const { return impl_->header.group_names[group]; }
std::span<const std::int32_t> ExecutionGraph::group_members(std::uint32_t group) const {
  return Impl::cut(impl_->columns.group_member, impl_->columns.group_member_offset, group);
}

std::size_t ExecutionGraph::class_count() const { return impl_->classes.size(); }
int ExecutionGraph::class_of(int rank) const { return impl_->columns.rank_class[rank]; }
const ClassView& ExecutionGraph::class_view(int cls) const {
  return impl_->check_class(cls) ? impl_->classes[cls] : kNothing;
}
std::uint32_t ExecutionGraph::group_of_slot(int rank, std::uint32_t slot) const { return group_slots(rank)[slot]; }
int ExecutionGraph::rank_of_peer_slot(int rank, std::uint32_t slot) const { return peer_slots(rank)[slot]; }
TimingView ExecutionGraph::timing(int rank) const {
  return impl_->check_rank(rank) ? impl_->timing(rank) : TimingView();
}
bool ExecutionGraph::has_own_times(int rank) const { return impl_->has_own_times(rank); }
MemoryView ExecutionGraph::memory(int rank) const {
  return impl_->check_rank(rank) ? impl_->memory(rank) : MemoryView();
}
std::span<const std::uint32_t> ExecutionGraph::group_slots(int rank) const {
  return Impl::cut(impl_->columns.rank_group, impl_->columns.rank_group_offset, rank);
}
std::span<const std::int32_t> ExecutionGraph::peer_slots(int rank) const {
  return Impl::cut(impl_->columns.rank_peer, impl_->columns.rank_peer_offset, rank);
}
Result<void> ExecutionGraph::check_rank(int rank) const { return impl_->check_rank(rank); }

}  // namespace prism
