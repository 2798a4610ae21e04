// PrismStore: the coordinator's key-value store as a c10d::Store; a rank that waits in it gives its slot back.
//
// Timeouts that the program names in wait() hold as they are; the store's own timeout only where it is longer than the
// capture's patience, because a rank that shares its slot with a thousand others is slow for no fault of its own.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

namespace prism {

class PrismStore : public c10d::Store {
 public:
  using Keys = std::vector<std::string>;
  using Value = std::vector<std::uint8_t>;

  PrismStore() = default;
  c10::intrusive_ptr<c10d::Store> clone() override;
  using Store::set;
  void set(const std::string& key, const Value& value) override;
  using Store::compareSet;
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override;
  Value get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const Keys& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const Keys& keys) override;
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Value& value) override;
  std::vector<Value> multiGet(const Keys& keys) override;
  void multiSet(const Keys& keys, const std::vector<Value>& values) override;
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& key, const Value& value) override;
  Value queuePop(const std::string& key, bool block) override;
  std::int64_t queueLen(const std::string& key) override;
  Keys listKeys() override;
};

}  // namespace prism
