#include "backend/c10d/cpu_allocator.hpp"

#include <c10/core/CPUAllocator.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "backend/c10d/memory_limit.hpp"
#include "backend/c10d/recording.hpp"

namespace prism {
namespace {

// Sizes of live allocations, because deleters are not told. Sharded: many threads allocate at once.
class SizeTable {
 public:
  void insert(void* data, std::size_t bytes) {
    auto& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    shard.sizes.insert_or_assign(data, bytes);
  }
  std::size_t erase(void* data) {
    auto& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.sizes.find(data);
    if (found == shard.sizes.end()) return 0;
    const auto bytes = found->second;
    shard.sizes.erase(found);
    return bytes;
  }
  // After fork only this thread exists; a lock may have been held by one that does not.
  void reset() {
    for (auto& shard : shards_) new (&shard) Shard;
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<void*, std::size_t> sizes;
  };
  Shard& shard_of(void* data) { return shards_[(reinterpret_cast<std::uintptr_t>(data) >> 6) % shards_.size()]; }
  std::array<Shard, 16> shards_;
};

std::atomic<bool> fill{false};

at::Allocator* wrapped = nullptr;
at::DeleterFnPtr wrapped_deleter = nullptr;
// Never destroyed: tensors of static lifetime are released after static destructors have begun.
SizeTable& sizes() {
  static auto* table = new SizeTable;
  return *table;
}

void release(void* data) {
  if (const auto bytes = sizes().erase(data))
    if (auto* recorder = Recorder::active()) recorder->memory(-static_cast<std::int64_t>(bytes));
  wrapped_deleter(data);
}

class CountingAllocator : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    auto* recorder = recorder_of_program();
    const auto wanted = static_cast<std::int64_t>(bytes);
    if (recorder) expect_room(*recorder, wanted);
    auto data = wrapped->allocate(bytes);
    // Only memory with a plain deleter: another context could not be told from ours when it is released.
    if (!recorder || bytes == 0 || !data.get() || data.get() != data.get_context() ||
        data.get_deleter() != wrapped_deleter)
      return data;
    if (!recorder->memory(wanted)) throw_out_of_memory(recorder->memory_in_use(), wanted);  // another thread came first
    if (!data.compare_exchange_deleter(wrapped_deleter, &release)) return data;
    if (fill) std::memset(data.get(), 0, bytes);
    sizes().insert(data.get(), bytes);
    return data;
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    wrapped->copy_data(target, source, count);
  }
};

}  // namespace

void install_cpu_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto* current = c10::GetCPUAllocator();
    const auto deleter = current->raw_deleter();
    if (!deleter) return;  // it makes no promise that its deleter can be exchanged
    wrapped = current;
    wrapped_deleter = deleter;
    c10::SetCPUAllocator(new CountingAllocator, 255);
  });
}

void fill_cpu_allocations() { fill = true; }

void forget_cpu_allocations() { sizes().reset(); }

}  // namespace prism
