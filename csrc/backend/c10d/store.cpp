#include "backend/c10d/store.hpp"

#include <c10/util/Exception.h>

#include <utility>

#include "backend/c10d/session.hpp"
#include "backend/c10d/solo.hpp"

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

// A rank that runs alone would wait for others' keys in vain: the rules say what they hold, or that nobody knows.
void ask_for_absent(const std::vector<std::string>& keys) {
  if (!is_solo()) return;
  for (const auto& key : keys)
    if (!unwrap(client().store_check({key}))) unwrap(client().store_set(key, ask_rules_for_key(key)));
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
  return unwrap(client().store_get(key, capture_deadline(timeout_)));
}

std::int64_t PrismStore::add(const std::string& key, std::int64_t value) {
  return unwrap(client().store_add(key, value));
}

bool PrismStore::deleteKey(const std::string& key) { return unwrap(client().store_delete(key)); }

bool PrismStore::check(const Keys& keys) { return unwrap(client().store_check(keys)); }

std::int64_t PrismStore::getNumKeys() { return unwrap(client().store_num_keys()); }

void PrismStore::wait(const Keys& keys) {
  ask_for_absent(keys);
  unwrap(client().store_wait(keys, capture_deadline(timeout_)));
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
  return unwrap(client().store_queue_pop(key, block, capture_deadline(timeout_)));
}

std::int64_t PrismStore::queueLen(const std::string& key) { return unwrap(client().store_queue_length(key)); }

PrismStore::Keys PrismStore::listKeys() { return unwrap(client().store_list_keys("")); }

}  // namespace prism
