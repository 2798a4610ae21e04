// The store's calls. Those that change something without an answer are not waited for: the coordinator handles what a
// rank says in order.
#include <fmt/format.h>

#include "backend/client/session.hpp"
#include "backend/client/thread_state.hpp"

namespace prism {

using wire::StoreReply;
using wire::StoreRequest;
using wire::StoreStatus;
using wire::StoreVerb;

namespace {

Result<void> check_size(const StoreRequest& request) {
  const auto check = [&](std::size_t bytes) -> Result<void> {
    if (bytes <= wire::kMaxValueBytes / 2) return {};
    return Error{
        ErrorCode::kInvalidInput,
        fmt::format("the store's key or value '{}' of {} bytes; accepted: at most {}",
                    request.keys.empty() ? "" : request.keys.front().substr(0, 64), bytes, wire::kMaxValueBytes / 2)};
  };
  std::size_t keys = 0;
  for (const auto& key : request.keys) keys += key.size();
  PRISM_RETURN_IF_ERROR(check(keys));
  return check(request.value.size() + request.expected.size());
}

}  // namespace

Result<void> RankClient::Impl::tell_store(StoreRequest request) {
  PRISM_RETURN_IF_ERROR(check_size(request));
  Lock lock(mutex_);
  PRISM_RETURN_IF_ERROR(enter(lock));
  send(lock, request);
  return {};
}

Result<StoreReply> RankClient::Impl::ask_store(StoreRequest request, std::optional<Deadline> deadline) {
  PRISM_RETURN_IF_ERROR(check_size(request));
  Lock lock(mutex_);
  PRISM_RETURN_IF_ERROR(enter(lock));
  const WorkId id = request.work = ++last_work_;
  Work& work = works_[id];  // references into the table stay valid while others come and go
  work.from_store = true;
  ++replies_awaited_;
  send(lock, request);
  slot_granted_.wait(lock, [&] { return work.reply || error_; });
  --replies_awaited_;
  Result<void> waited;
  if (work.reply && work.reply->status == StoreStatus::kPending && !error_)
    waited = wait_for(lock, {id}, deadline.value_or(Deadline(Clock::time_point::max())));
  const auto reply = std::move(work.reply);
  works_.erase(id);
  if (error_ && (!reply || reply->status == StoreStatus::kPending)) return *error_;
  if (!waited) {
    if (waited.error().code != ErrorCode::kTimeout) return waited.error();
    send(lock, wire::StoreCancel{id});
    return Error{
        ErrorCode::kTimeout,
        fmt::format("the store's key '{}'{} has not appeared", request.keys.front(),
                    request.keys.size() > 1 ? fmt::format(" or one of {} more", request.keys.size() - 1) : "")};
  }
  if (reply->status == StoreStatus::kWrongUse)
    return Error{ErrorCode::kInvalidInput, fmt::format("wrong use of the store's key '{}': not a number, or too large",
                                                       request.keys.empty() ? "" : request.keys.front())};
  return *reply;
}

void RankClient::Impl::yield_store_poll() {
  Lock lock(mutex_);
  if (!inert_) yield(lock, true);
}

namespace {

StoreRequest request(StoreVerb verb, std::vector<std::string> keys, RankClient::Bytes value = {}) {
  StoreRequest request;
  request.verb = verb;
  request.keys = std::move(keys);
  request.value = std::move(value);
  return request;
}

}  // namespace

Result<void> RankClient::store_set(const std::string& key, const Bytes& value) {
  return impl_->tell_store(request(StoreVerb::kSet, {key}, value));
}

Result<RankClient::Bytes> RankClient::store_get(const std::string& key, Deadline deadline) {
  PRISM_ASSIGN_OR_RETURN(auto reply, impl_->ask_store(request(StoreVerb::kGet, {key}), deadline));
  return std::move(reply.value);
}

Result<std::int64_t> RankClient::store_add(const std::string& key, std::int64_t amount) {
  auto add = request(StoreVerb::kAdd, {key});
  add.amount = amount;
  PRISM_ASSIGN_OR_RETURN(const auto reply, impl_->ask_store(std::move(add)));
  return reply.number;
}

Result<RankClient::Bytes> RankClient::store_compare_set(const std::string& key, const Bytes& expected,
                                                        const Bytes& desired) {
  auto compare = request(StoreVerb::kCompareSet, {key}, desired);
  compare.expected = expected;
  PRISM_ASSIGN_OR_RETURN(auto reply, impl_->ask_store(std::move(compare)));
  return std::move(reply.value);
}

Result<void> RankClient::store_append(const std::string& key, const Bytes& value) {
  return impl_->tell_store(request(StoreVerb::kAppend, {key}, value));
}

Result<bool> RankClient::store_check(const std::vector<std::string>& keys) {
  PRISM_ASSIGN_OR_RETURN(const auto reply, impl_->ask_store(request(StoreVerb::kCheck, keys)));
  if (reply.number == 0) impl_->yield_store_poll();
  return reply.number != 0;
}

Result<void> RankClient::store_wait(const std::vector<std::string>& keys, Deadline deadline) {
  PRISM_RETURN_IF_ERROR(impl_->ask_store(request(StoreVerb::kWait, keys), deadline));
  return {};
}

Result<bool> RankClient::store_delete(const std::string& key) {
  PRISM_ASSIGN_OR_RETURN(const auto reply, impl_->ask_store(request(StoreVerb::kDelete, {key})));
  return reply.number != 0;
}

Result<std::int64_t> RankClient::store_num_keys() {
  PRISM_ASSIGN_OR_RETURN(const auto reply, impl_->ask_store(request(StoreVerb::kNumKeys, {})));
  return reply.number;
}

Result<std::vector<std::string>> RankClient::store_list_keys(const std::string& prefix) {
  PRISM_ASSIGN_OR_RETURN(auto reply, impl_->ask_store(request(StoreVerb::kListKeys, {prefix})));
  return std::move(reply.keys);
}

Result<void> RankClient::store_queue_push(const std::string& key, const Bytes& value) {
  return impl_->tell_store(request(StoreVerb::kQueuePush, {key}, value));
}

Result<RankClient::Bytes> RankClient::store_queue_pop(const std::string& key, bool block, Deadline deadline) {
  auto pop = request(StoreVerb::kQueuePop, {key});
  pop.block = block;
  PRISM_ASSIGN_OR_RETURN(auto reply, impl_->ask_store(std::move(pop), deadline));
  if (reply.status == StoreStatus::kAbsent)
    return Error{ErrorCode::kInvalidInput, fmt::format("the store's queue '{}' is empty", key)};
  return std::move(reply.value);
}

Result<std::int64_t> RankClient::store_queue_length(const std::string& key) {
  PRISM_ASSIGN_OR_RETURN(const auto reply, impl_->ask_store(request(StoreVerb::kQueueLength, {key})));
  return reply.number;
}

}  // namespace prism
