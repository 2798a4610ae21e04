#include "backend/coordinator/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace prism {

using wire::StoreReply;
using wire::StoreRequest;
using wire::StoreStatus;
using wire::StoreVerb;

std::string Store::Waiting::describe() const {
  return fmt::format("{} '{}'{}", verb == StoreVerb::kQueuePop ? "an item in the store's queue" : "the store's key",
                     keys.empty() ? "" : keys.front(),
                     keys.size() > 1 ? fmt::format(" and {} more", keys.size() - 1) : "");
}

StoreReply Store::serve(int rank, StoreRequest request) {
  StoreReply answer;
  answer.work = request.work;
  const auto wrong = [&] {
    answer.status = StoreStatus::kWrongUse;
    return answer;
  };
  const bool many = request.verb == StoreVerb::kCheck || request.verb == StoreVerb::kWait;
  if (!many && request.verb != StoreVerb::kNumKeys && request.keys.size() != 1) return wrong();
  const std::string key = request.keys.empty() ? "" : request.keys.front();
  switch (request.verb) {
    case StoreVerb::kSet:
      values_[key] = std::move(request.value);
      appeared(key);
      break;
    case StoreVerb::kGet: {
      const auto found = values_.find(key);
      if (found == values_.end()) return wait(rank, request, {key});
      answer.value = found->second;
      break;
    }
    case StoreVerb::kAdd:
      return add(request);
    case StoreVerb::kCompareSet: {
      // As torch's TCPStore: an absent key equals an empty expectation, and answers with the expectation otherwise.
      const auto found = values_.find(key);
      const bool set = found == values_.end() ? request.expected.empty() : found->second == request.expected;
      if (set) {
        values_[key] = request.value;
        answer.value = std::move(request.value);
        appeared(key);
      } else {
        answer.value = found == values_.end() ? std::move(request.expected) : found->second;
      }
      break;
    }
    case StoreVerb::kAppend: {
      Bytes& value = values_[key];
      if (value.size() + request.value.size() > wire::kMaxValueBytes) return wrong();
      value.insert(value.end(), request.value.begin(), request.value.end());
      appeared(key);
      break;
    }
    case StoreVerb::kCheck:
    case StoreVerb::kWait: {
      std::vector<std::string> missing;
      for (auto& wanted : request.keys)
        if (values_.count(wanted) == 0) missing.push_back(std::move(wanted));
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      if (request.verb == StoreVerb::kWait && !missing.empty()) return wait(rank, request, std::move(missing));
      answer.number = missing.empty();
      break;
    }
    case StoreVerb::kDelete:
      answer.number = static_cast<std::int64_t>(values_.erase(key));
      ++changes_;
      break;
    case StoreVerb::kNumKeys:
      answer.number = static_cast<std::int64_t>(values_.size());
      break;
    case StoreVerb::kListKeys:
      for (auto entry = values_.lower_bound(key); entry != values_.end() && entry->first.starts_with(key); ++entry)
        answer.keys.push_back(entry->first);
      break;
    case StoreVerb::kQueuePush:
      queues_[key].push_back(std::move(request.value));
      pushed(key);
      break;
    case StoreVerb::kQueuePop: {
      const auto queue = queues_.find(key);
      if (queue == queues_.end()) {
        if (request.block) return wait(rank, request, {key});
        answer.status = StoreStatus::kAbsent;
        break;
      }
      answer.value = std::move(queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) queues_.erase(queue);
      break;
    }
    case StoreVerb::kQueueLength: {
      const auto queue = queues_.find(key);
      answer.number = queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size());
      break;
    }
    case StoreVerb::kCount:
      return wrong();
  }
  return answer;
}

// Counters are decimal text, as programs that read them with get() expect.
StoreReply Store::add(const StoreRequest& request) {
  StoreReply answer;
  answer.work = request.work;
  Bytes& value = values_[request.keys.front()];
  const auto* text = reinterpret_cast<const char*>(value.data());
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text, text + value.size(), number);
  const bool counts = value.empty() || (parsed.ec == std::errc() && parsed.ptr == text + value.size());
  if (!counts || __builtin_add_overflow(number, request.amount, &answer.number)) {
    answer.status = StoreStatus::kWrongUse;
    return answer;
  }
  const std::string written = std::to_string(answer.number);
  value.assign(written.begin(), written.end());
  appeared(request.keys.front());
  return answer;
}

StoreReply Store::wait(int rank, const StoreRequest& request, std::vector<std::string> missing) {
  auto waiting = std::make_shared<Waiting>();
  waiting->rank = rank;
  waiting->work = request.work;
  waiting->verb = request.verb;
  waiting->keys = std::move(missing);
  auto& index = request.verb == StoreVerb::kQueuePop ? waiting_for_item_ : waiting_for_key_;
  for (const auto& key : waiting->keys) index[key].push_back(waiting);
  waiting_[{rank, request.work}] = waiting;
  StoreReply answer;
  answer.work = request.work;
  answer.status = StoreStatus::kPending;
  return answer;
}

void Store::appeared(const std::string& key) {
  ++changes_;
  const auto found = waiting_for_key_.find(key);
  if (found == waiting_for_key_.end()) return;
  const auto all = std::move(found->second);
  waiting_for_key_.erase(found);
  for (const auto& waiting : all) {
    std::erase(waiting->keys, key);
    if (!waiting->keys.empty()) continue;
    waiting_.erase({waiting->rank, waiting->work});
    StoreReply answer;
    answer.work = waiting->work;
    if (waiting->verb == StoreVerb::kGet) answer.value = values_[key];
    reply_(waiting->rank, std::move(answer));
  }
}

void Store::pushed(const std::string& key) {
  ++changes_;
  const auto found = waiting_for_item_.find(key);
  if (found == waiting_for_item_.end()) return;
  const auto waiting = found->second.front();
  forget(waiting);
  StoreRequest pop;
  pop.work = waiting->work;
  pop.verb = StoreVerb::kQueuePop;
  pop.keys = {key};
  reply_(waiting->rank, serve(waiting->rank, std::move(pop)));
}

std::shared_ptr<Store::Waiting> Store::waiting(int rank, WorkId work) const {
  const auto found = waiting_.find({rank, work});
  return found == waiting_.end() ? nullptr : found->second;
}

void Store::cancel(int rank, WorkId work) {
  if (const auto found = waiting(rank, work)) forget(found);
}

void Store::forget(const std::shared_ptr<Waiting>& waiting) {
  auto& index = waiting->verb == StoreVerb::kQueuePop ? waiting_for_item_ : waiting_for_key_;
  for (const auto& key : waiting->keys) {
    const auto queue = index.find(key);
    if (queue == index.end()) continue;
    std::erase(queue->second, waiting);
    if (queue->second.empty()) index.erase(queue);
  }
  waiting_.erase({waiting->rank, waiting->work});
}

}  // namespace prism
