#include "backend/c10d/store.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "backend/c10d/recording.hpp"
#include "backend/c10d/session.hpp"
#include "backend/c10d/solo.hpp"
#include "core/deadline.hpp"

namespace prism {
namespace {

RankClient& client() {
  auto* client = session_client();
  if (!client) throw_store({ErrorCode::kAborted, "this process has no connection to a coordinator"});
  return *client;
}

template <typename T>
T unwrap(Result<T> result) {
  if (!result) throw_store(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Whether the key is there, now that a rule may have said what it holds.
bool is_told(const std::string& key) {
  if (unwrap(client().store_check({key}))) return true;
  const auto value = [&] {
    const NotOfProgram rules_at_work;
    return answerer().store_key(key);
  }();
  if (value) unwrap(client().store_set(key, *value));
  return value.has_value();
}

// Of a rank among virtual ones nobody knows which keys those would have set: not for long.
Deadline deadline(std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kPatience{60};
  if (!client().is_emulated()) return capture_deadline(timeout);
  return Deadline::after(std::min<std::chrono::nanoseconds>(timeout, kPatience));
}

// A rank that runs alone would wait for others' keys in vain.
void ask_for_absent(const std::vector<std::string>& keys) {
  if (!is_solo()) return;
  for (const auto& key : keys)
    if (!is_told(key)) answerer().absent_key(key);
}

// A rank that runs alone and does nothing but look at one thing in the store, which does not change, would do so for
// ever.
class Poll {
 public:
  void looked(const std::string& key, std::int64_t value, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    const Seen now{key, value, answers_given()};
    if (!(now == seen_)) {
      seen_ = now;
      until_ = Deadline::after(std::min<std::chrono::nanoseconds>(timeout, kPatience));
    } else if (until_.passed()) {
      answerer().absent_key(key);
    }
  }

 private:
  static constexpr std::chrono::seconds kPatience{30};
  struct Seen {
    std::string key;
    std::int64_t value = 0;
    std::uint64_t answers = 0;
    bool operator==(const Seen&) const = default;
  };
  std::mutex mutex_;
  Seen seen_;
  Deadline until_ = Deadline::after(kPatience);
};

Poll& poll() {
  static auto* poll = new Poll;  // threads may still poll while statics are destroyed
  return *poll;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> PrismStore::clone() {
  auto copy = c10::make_intrusive<PrismStore>();
  copy->setTimeout(timeout_);
  return copy;
}

void PrismStore::set(const std::string& key, const Value& value) { unwrap(client().store_set(key, value)); }

PrismStore::Value PrismStore::compareSet(const std::string& key, const Value& expected, const Value& desired) {
  return unwrap(client().store_compare_set(key, expected, desired));
}

PrismStore::Value PrismStore::get(const std::string& key) {
  ask_for_absent({key});
  return unwrap(client().store_get(key, deadline(timeout_)));
}

std::int64_t PrismStore::add(const std::string& key, std::int64_t value) {
  const auto sum = unwrap(client().store_add(key, value));
  if (is_solo() && value == 0) poll().looked(key, sum, timeout_);
  return sum;
}

bool PrismStore::deleteKey(const std::string& key) { return unwrap(client().store_delete(key)); }

bool PrismStore::check(const Keys& keys) {
  if (is_solo()) {
    const auto absent = std::find_if(keys.begin(), keys.end(), [](const auto& key) { return !is_told(key); });
    if (absent != keys.end()) poll().looked(*absent, -1, timeout_);
  }
  return unwrap(client().store_check(keys));
}

std::int64_t PrismStore::getNumKeys() { return unwrap(client().store_num_keys()); }

void PrismStore::wait(const Keys& keys) {
  ask_for_absent(keys);
  unwrap(client().store_wait(keys, deadline(timeout_)));
}

void PrismStore::wait(const Keys& keys, const std::chrono::milliseconds& timeout) {
  ask_for_absent(keys);
  unwrap(client().store_wait(keys, Deadline::after(timeout)));
}

void PrismStore::append(const std::string& key, const Value& value) { unwrap(client().store_append(key, value)); }

std::vector<PrismStore::Value> PrismStore::multiGet(const Keys& keys) {
  std::vector<Value> values;
  for (const auto& key : keys) values.push_back(get(key));
  return values;
}

void PrismStore::multiSet(const Keys& keys, const std::vector<Value>& values) {
  TORCH_CHECK(keys.size() == values.size(), "multiSet: ", keys.size(), " keys and ", values.size(), " values");
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void PrismStore::queuePush(const std::string& key, const Value& value) {
  unwrap(client().store_queue_push(key, value));
}

PrismStore::Value PrismStore::queuePop(const std::string& key, bool block) {
  if (is_solo() && block && unwrap(client().store_queue_length(key)) == 0) answerer().absent_key(key);
  return unwrap(client().store_queue_pop(key, block, deadline(timeout_)));
}

std::int64_t PrismStore::queueLen(const std::string& key) { return unwrap(client().store_queue_length(key)); }

PrismStore::Keys PrismStore::listKeys() { return unwrap(client().store_list_keys("")); }

}  // namespace prism
