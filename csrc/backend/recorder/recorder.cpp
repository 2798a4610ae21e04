#include "backend/recorder/recorder.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "backend/recorder/recording.hpp"
#include "core/deadline.hpp"

namespace prism {

using recorder::Lane;

namespace {

std::atomic<Recorder*> active_recorder{nullptr};
std::atomic<std::uint64_t> generations{0};

// The calling thread's place in the recording `generation`; stale entries of earlier recordings are never followed.
struct ThreadPlace {
  std::uint64_t generation = 0;
  Lane* lane = nullptr;
  int callbacks = 0;              // nested callbacks on this thread
  bool callback_lane = false;     // the lane was lent to the outermost callback
  std::size_t events_before = 0;  // of the lane when that callback began
};
thread_local ThreadPlace place;

// Past recordings stay in memory (their lanes do not): threads may still be inside a call, an allocation hook above
// all.
std::vector<std::unique_ptr<Recorder>>& retired() {
  static auto* list = new std::vector<std::unique_ptr<Recorder>>;
  return *list;
}
std::mutex& lifecycle() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::string_view thread_kind() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name).starts_with("pt_autograd") ? "autograd" : "thread";
}

}  // namespace

// ---- lanes

Lane& Recorder::Impl::add_lane(std::string name, std::int64_t at_ns) {
  lanes.push_back(std::make_unique<Lane>(std::move(name), at_ns));
  return *lanes.back();
}

Lane& Recorder::Impl::lane(std::int64_t at_ns) {
  if (place.generation == generation && place.lane) return *place.lane;
  std::scoped_lock lock(mutex);
  std::string_view kind = thread_kind();
  int number = kind == "autograd" ? autograd_lanes++ : other_lanes++;
  place = {generation, &add_lane(fmt::format("{}-{}", kind, number), at_ns)};
  return *place.lane;
}

void Recorder::Impl::emit(Lane& lane, NodeKind kind, std::int64_t at_ns, std::int32_t comm) {
  auto event = static_cast<std::uint32_t>(lane.events.size());
  std::int64_t end = std::max(at_ns, lane.free_since_ns);
  bool named = kind == NodeKind::kCompute && lane.next_name != kNoName;
  lane.events.push_back({lane.free_since_ns, end, comm, named ? lane.next_name : kNoName, kind});
  lane.free_since_ns = end;
  if (named) lane.next_name = kNoName;
  if (lane.mark_next) lane.marks.push_back(event);
  lane.mark_next = false;
  for (CommId cause : lane.causes) lane.caused.push_back({event, cause});
  lane.causes.clear();
  if (auto step = meter.step()) lane.memory.push_back({event, step->bytes, step->peak});
}

void Recorder::Impl::emit_issue(Lane& lane, std::int64_t at_ns) {
  auto event = static_cast<std::uint32_t>(lane.events.size());
  for (CommId comm : lane.open) lane.issued.push_back({event, comm});
  emit(lane, NodeKind::kIssue, at_ns, lane.open.front());
  lane.open.clear();
}

void Recorder::Impl::emit_wait(Lane& lane, std::int64_t at_ns, std::span<const CommId> comms) {
  auto event = static_cast<std::uint32_t>(lane.events.size());
  for (CommId comm : comms) lane.waited.push_back({event, comm});
  emit(lane, NodeKind::kWait, at_ns, comms.empty() ? kNoComm : comms.front());
}

void Recorder::Impl::cut(Lane& lane, std::int64_t at_ns) {
  if (lane.callback_since_ns != Lane::kNoCallback) {  // what went before the callback does not depend on its cause
    std::int64_t since = std::exchange(lane.callback_since_ns, Lane::kNoCallback);
    std::vector<CommId> causes = std::exchange(lane.causes, {});
    if (lane.callback_number < 0) cut(lane, since);
    lane.causes = std::move(causes);
  }
  if (!lane.open.empty()) return emit_issue(lane, at_ns);
  if (lane.wait_depth > 0) return emit_wait(lane, at_ns, {});
  // A span below the clock's resolution belongs to its neighbour. A bare graph keeps it: there the structure must not
  // depend on times.
  if (at_ns > lane.free_since_ns || !options.timed) emit(lane, NodeKind::kCompute, at_ns, kNoComm);
}

// ---- life of a recording

Recorder::Recorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Recorder::~Recorder() = default;

Recorder* Recorder::active() { return active_recorder.load(std::memory_order_relaxed); }

Result<void> Recorder::start(Options options) {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { Recorder::abandon(); });
  if (registered != 0) return Error{ErrorCode::kInternal, "the recorder's fork handler cannot be registered"};
  std::scoped_lock lock(lifecycle());
  if (Recorder* running = active())
    return Error{ErrorCode::kInvalidInput, fmt::format("recording to '{}' cannot start: this process records to '{}'",
                                                       options.path, running->impl_->options.path)};
  auto impl = std::make_unique<Impl>(std::move(options));
  impl->generation = ++generations;
  std::int64_t now = impl->now();
  place = {impl->generation, &impl->add_lane("main", now)};
  retired().push_back(std::unique_ptr<Recorder>(new Recorder(std::move(impl))));
  active_recorder.store(retired().back().get(), std::memory_order_release);
  return {};
}

void Recorder::abandon() { active_recorder.store(nullptr, std::memory_order_relaxed); }

Result<RankRecord> Recorder::take() {
  std::scoped_lock lock(lifecycle());
  Recorder* recorder = active_recorder.exchange(nullptr);
  if (!recorder) return Error{ErrorCode::kInvalidInput, "finish() without a recording: nothing was started"};
  Impl& impl = *recorder->impl_;
  impl.close(impl.now());
  return impl.record();
}

Result<void> Recorder::finish() {
  Recorder* recorder = active();
  PRISM_ASSIGN_OR_RETURN(RankRecord record, take());
  return recorder->impl_->write(std::move(record));
}

// ---- what the program does

std::uint32_t Recorder::group(const std::string& name, std::span<const std::int32_t> members) {
  return impl_->comms.group(name, members);
}

std::int32_t Recorder::next_batch() { return impl_->batches.fetch_add(1, std::memory_order_relaxed); }

CommId Recorder::begin_issue(const CommInfo& info) {
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  if (lane.open.empty()) impl_->cut(lane, at);
  CommId comm = impl_->comms.add(info);
  if (comm == kNoComm) return comm;
  lane.open.push_back(comm);
  ++lane.issue_depth;
  return comm;
}

void Recorder::end_issue(CommId comm) {
  if (comm == kNoComm) return;
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  if (lane.issue_depth == 0 || --lane.issue_depth > 0) return;
  if (!lane.open.empty()) impl_->emit_issue(lane, at);
}

void Recorder::withdraw_issue(CommId comm) {
  if (comm == kNoComm) return;
  Lane& lane = impl_->lane(impl_->now());
  if (std::erase(lane.open, comm) == 0) return end_issue(comm);  // the lane was cut meanwhile, with it on record
  impl_->comms.withdraw(comm);
  --lane.issue_depth;
}

void Recorder::transfer_done(CommId comm, std::int64_t at_ns) { impl_->comms.done(comm, at_ns); }

void Recorder::begin_wait() {
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  if (lane.wait_depth == 0) impl_->cut(lane, at);
  ++lane.wait_depth;
}

void Recorder::end_wait(std::span<const CommId> comms) {
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  if (lane.wait_depth == 0) return;
  lane.awaited.insert(lane.awaited.end(), comms.begin(), comms.end());
  if (--lane.wait_depth > 0) return;
  impl_->emit_wait(lane, at, lane.awaited);
  lane.awaited.clear();
}

void Recorder::begin_callback(CommId cause) {
  std::int64_t at = impl_->now();
  if (place.generation != impl_->generation || !place.lane) {
    std::scoped_lock lock(impl_->mutex);
    auto& idle = impl_->idle_callback_lanes;
    if (idle.empty()) {
      idle.push_back(&impl_->add_lane(fmt::format("callback-{}", impl_->callback_lanes), at));
      idle.back()->callback_number = impl_->callback_lanes++;
    }
    auto lowest = std::ranges::min_element(idle, {}, &Lane::callback_number);
    place = {impl_->generation, *lowest, 0, true};
    idle.erase(lowest);
    place.lane->free_since_ns = std::max(at, place.lane->free_since_ns);
    place.lane->callback_since_ns = place.lane->free_since_ns;
  } else if (place.callbacks == 0) {
    place.lane->callback_since_ns = at;
  }
  ++place.callbacks;
  if (cause != kNoComm) place.lane->causes.push_back(cause);
}

void Recorder::end_callback() {
  if (place.generation != impl_->generation || place.callbacks == 0 || --place.callbacks > 0) return;
  Lane& lane = *place.lane;
  bool recorded = lane.callback_since_ns == Lane::kNoCallback;
  if (recorded) impl_->cut(lane, impl_->now());
  lane.callback_since_ns = Lane::kNoCallback;
  lane.causes.clear();
  if (!place.callback_lane) return;
  std::scoped_lock lock(impl_->mutex);
  impl_->idle_callback_lanes.push_back(&lane);
  place = {};
}

void Recorder::mark_iteration() {
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  impl_->cut(lane, at);
  lane.mark_next = true;
}

void Recorder::name_next_span(std::string name) {
  std::int64_t at = impl_->now();
  Lane& lane = impl_->lane(at);
  impl_->cut(lane, at);
  std::scoped_lock lock(impl_->mutex);
  auto known = std::ranges::find(impl_->names, name);
  lane.next_name = static_cast<std::uint32_t>(known - impl_->names.begin());
  if (known == impl_->names.end()) impl_->names.push_back(std::move(name));
}

bool Recorder::memory(std::int64_t delta) noexcept { return impl_->meter.add(delta); }
bool Recorder::communicator_memory(std::int64_t delta) noexcept { return impl_->meter.hold(delta); }
MemoryInUse Recorder::memory_in_use() const noexcept { return impl_->meter.in_use(); }
void Recorder::set_memory_limit(std::int64_t bytes) noexcept { impl_->meter.set_limit(bytes); }

std::int64_t Recorder::now() const { return impl_->now(); }

}  // namespace prism
