// What c10d asks of a backend beside collectives and messages. The table is docs/design/c10d_coverage.md.
#include <algorithm>
#include <utility>

#include "backend/c10d/backend.hpp"

namespace prism {

using c10d::Backend;

template <typename Call, typename Otherwise>
auto PrismBackend::forwarded(Call call, Otherwise otherwise) const {
  const auto inner = route_->inner();
  return inner ? call(*inner) : otherwise();
}

bool PrismBackend::supportsShrinking() const {
  return forwarded([](Backend& inner) { return inner.supportsShrinking(); }, [] { return false; });
}

BackendPtr PrismBackend::shrink(const Vector<std::int64_t>& excluded, int flags, const OptionsPtr& options) {
  const auto inner = route_->inner();
  if (!inner) return Backend::shrink(excluded, flags, options);
  GroupInfo group{.backend = group_.backend, .key = {}, .rank = -1, .members = {}};
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) continue;
    if (rank == group_.rank) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(group_.members[rank]);
  }
  group.key = group_.key + "/shrunk";
  for (const auto member : group.members) group.key += "-" + std::to_string(member);
  auto shrunk = inner->shrink(excluded, flags, options);
  if (!shrunk || group.rank < 0) return shrunk;
  auto route = make_real_route(group, std::move(shrunk));
  return c10::make_intrusive<PrismBackend>(std::move(group), std::move(route));
}

BackendPtr PrismBackend::merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& options, const int& rank,
                               const int& size) {
  TORCH_CHECK(options && rank >= 0 && rank < size, "merge: rank ", rank, " of ", size, "; accepted: 0 to size - 1");
  GroupInfo group;
  group.backend = group_.backend;
  group.rank = rank;
  // Nobody tells a member who the others are, nor, in every version of torch, all of them the same name.
  if (rank == 0) store->set("prism/key", "merged/" + options->group_name);
  group.key = store->get_to_str("prism/key");
  store->set("prism/" + std::to_string(rank), std::to_string(group_.members[group_.rank]));
  for (int member = 0; member < size; ++member) {
    const auto said = store->get_to_str("prism/" + std::to_string(member));
    group.members.push_back(std::stoi(said));
  }
  auto route = route_->merge(store, options, group);
  return c10::make_intrusive<PrismBackend>(std::move(group), std::move(route));
}

c10d::ErrorType PrismBackend::getError() {
  return forwarded([](Backend& inner) { return inner.getError(); }, [] { return c10d::ErrorType::SUCCESS; });
}

// Gloo's does nothing, and so does ours under capture: times there are not those of a backend.
void PrismBackend::enableCollectivesTiming() {
  forwarded([](Backend& inner) { inner.enableCollectivesTiming(); }, [] {});
}

void PrismBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  forwarded([&](Backend& inner) { inner.registerOnCompletionHook(std::move(hook)); },
            [&] { Backend::registerOnCompletionHook(std::move(hook)); });
}

void PrismBackend::waitForPendingWorks() {
  forwarded([](Backend& inner) { inner.waitForPendingWorks(); }, [this] { Backend::waitForPendingWorks(); });
}

std::shared_ptr<c10::Allocator> PrismBackend::getMemAllocator() {
  return forwarded([](Backend& inner) { return inner.getMemAllocator(); },
                   [this] { return Backend::getMemAllocator(); });
}

at::Tensor PrismBackend::allocateTensor(long size, at::TensorOptions options) {
  return forwarded([&](Backend& inner) { return inner.allocateTensor(size, options); },
                   [&] { return Backend::allocateTensor(size, options); });
}

bool PrismBackend::supportsTensorAlloc(c10::DeviceIndex device) {
  return forwarded([&](Backend& inner) { return inner.supportsTensorAlloc(device); }, [] { return false; });
}

bool PrismBackend::supportsTimeEstimation() const {
  return forwarded([](Backend& inner) { return inner.supportsTimeEstimation(); }, [] { return false; });
}

#ifdef C10D_BACKEND_HAS_HOOKS

bool PrismBackend::isInitialized() {
  return forwarded([](Backend& inner) { return inner.isInitialized(); }, [] { return true; });
}

void PrismBackend::startTimeEstimate() {
  forwarded([](Backend& inner) { inner.startTimeEstimate(); }, [this] { Backend::startTimeEstimate(); });
}

float PrismBackend::endTimeEstimate() {
  return forwarded([](Backend& inner) { return inner.endTimeEstimate(); },
                   [this] { return Backend::endTimeEstimate(); });
}

void PrismBackend::addEphemeralTimeout(const std::chrono::milliseconds& timeout) {
  forwarded([&](Backend& inner) { inner.addEphemeralTimeout(timeout); }, [] {});
}

// A recording names a group's members once, so members may change only where nothing is recorded.
bool PrismBackend::supportsReconfigure() const {
  auto* other = route_->bypass();
  return other && other->supportsReconfigure();
}

c10d::ReconfigureHandle PrismBackend::get_reconfigure_handle() const {
  auto* other = route_->bypass();
  return other ? other->get_reconfigure_handle() : Backend::get_reconfigure_handle();
}

WorkPtr PrismBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  auto* other = route_->bypass();
  return other ? other->reconfigure(options) : Backend::reconfigure(options);
}

// One-sided access is not recorded; where something is, a program must not believe that it were.
bool PrismBackend::supportsWindow() const {
  auto* other = route_->bypass();
  return other && other->supportsWindow();
}

c10::intrusive_ptr<c10d::Window> PrismBackend::new_window(const std::optional<at::Tensor>& tensor) {
  auto* other = route_->bypass();
  return other ? other->new_window(tensor) : Backend::new_window(tensor);
}

bool PrismBackend::supportsAbortHooks() const {
  return forwarded([](Backend& inner) { return inner.supportsAbortHooks(); }, [] { return false; });
}

void PrismBackend::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  forwarded([&](Backend& inner) { inner.registerAbortHook(id, std::move(hook)); },
            [&] { Backend::registerAbortHook(id, std::move(hook)); });
}

void PrismBackend::unregisterAbortHook(std::int64_t id) {
  forwarded([&](Backend& inner) { inner.unregisterAbortHook(id); }, [&] { Backend::unregisterAbortHook(id); });
}

bool PrismBackend::supportsCompletionHooks() const {
  return forwarded([](Backend& inner) { return inner.supportsCompletionHooks(); }, [] { return false; });
}

void PrismBackend::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  forwarded([&](Backend& inner) { inner.registerCompletionHook(id, std::move(hook)); },
            [&] { Backend::registerCompletionHook(id, std::move(hook)); });
}

void PrismBackend::unregisterCompletionHook(std::int64_t id) {
  forwarded([&](Backend& inner) { inner.unregisterCompletionHook(id); },
            [&] { Backend::unregisterCompletionHook(id); });
}

void PrismBackend::suspend() {
  forwarded([](Backend& inner) { inner.suspend(); }, [this] { Backend::suspend(); });
}

void PrismBackend::resume() {
  forwarded([](Backend& inner) { inner.resume(); }, [this] { Backend::resume(); });
}

std::unordered_map<std::string, std::uint64_t> PrismBackend::getMemoryStats() {
  return forwarded([](Backend& inner) { return inner.getMemoryStats(); }, [this] { return Backend::getMemoryStats(); });
}

#endif

}  // namespace prism
