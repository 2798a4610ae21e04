#include "backend/client/rank_client.hpp"

#include <fmt/format.h>

#include "backend/client/session.hpp"

namespace prism {

RankClient::RankClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RankClient::~RankClient() {
  // In a forked child the threads that the session would wait for do not exist.
  if (impl_ && impl_->inert_) static_cast<void>(impl_.release());
}

Result<std::unique_ptr<RankClient>> RankClient::connect(const Options& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} of {}; accepted: 0 to {}", options.rank,
                                                       options.world_size, options.world_size - 1)};
  auto impl = std::make_unique<Impl>(options);
  PRISM_RETURN_IF_ERROR(impl->connect());
  return std::unique_ptr<RankClient>(new RankClient(std::move(impl)));
}

Result<Region> RankClient::stage(std::size_t bytes) {
  if (impl_->inert_) return Error{ErrorCode::kAborted, "this process was forked from a rank and is none itself"};
  return impl_->staging_->stage(bytes);
}
std::byte* RankClient::data(Region region) const { return impl_->memory_->at(region.offset); }
void RankClient::discard(Region region) {
  if (!impl_->inert_) impl_->staging_->discard(region);
}

Result<GroupHandle> RankClient::join_group(const std::string& key, std::span<const std::int32_t> members) {
  return impl_->join_group(key, members);
}
void RankClient::leave_group(GroupHandle group) { impl_->leave_group(group); }
Result<WorkId> RankClient::issue(const Operation& operation, Completion done) {
  return impl_->issue(operation, std::move(done));
}
Result<WorkId> RankClient::complete_at_once(Completion done) { return impl_->complete_at_once(std::move(done)); }
Result<void> RankClient::wait(std::span<const WorkId> works, Deadline deadline) { return impl_->wait(works, deadline); }
bool RankClient::poll(WorkId work) { return impl_->poll(work); }
void RankClient::lend_slot() { impl_->lend_slot(); }
void RankClient::without_slot(const std::function<void()>& blocking) { impl_->without_slot(blocking); }
void RankClient::sleep_outside() {
  if (!impl_->inert_) impl_->sleep_outside();
}
void RankClient::wake_outside() {
  if (!impl_->inert_) impl_->wake_outside();
}
void RankClient::note_device_use() { impl_->uses_device_ = true; }
std::int64_t RankClient::off_slot_ns() const { return impl_->off_slot_ns(); }
std::int64_t RankClient::waiting_ns() const { return impl_->waiting_ns(); }
bool RankClient::is_emulated() const { return impl_->clock_.has_value(); }
std::int64_t RankClient::emulated_now_ns() const { return impl_->emulated_now_ns(); }
void RankClient::stand_clock() {
  if (impl_->clock_) impl_->with_clock([](EmulatedClock& clock) { clock.stand(); });
}
void RankClient::go_on_clock() {
  if (impl_->clock_) impl_->with_clock([](EmulatedClock& clock) { clock.go_on(); });
}
void RankClient::wake_clock() {
  if (impl_->clock_) impl_->with_clock([](EmulatedClock& clock) { clock.wake(); });
}
void RankClient::finish(const std::string& error_text) { impl_->finish(error_text); }

}  // namespace prism
