// What members that never come put into operations, as far as it was recorded (`prism capture --data`), and what those
// who come put in then. Loop thread only.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/coordinator/exchange.hpp"
#include "backend/protocol/shared_memory.hpp"
#include "core/result.hpp"
#include "data/reader.hpp"

namespace prism {

class VirtualValues {
 public:
  VirtualValues() = default;  // nothing was recorded
  // kInvalidInput where the folder has what other ranks than `real` receive; errors as of RecordedData::open().
  static Result<VirtualValues> open(const std::string& folder, const std::vector<int>& real);

  // What a member put in (or kVirtualPart), if it has that size and, but for kNone, that type.
  std::optional<RecordedData::Tensor> find(const Exchange& exchange, std::int32_t member, std::uint32_t index,
                                           DType dtype, std::uint64_t bytes) const;
  // A message from a member that never comes has been taken: the next one of this kind is the next that was recorded.
  void taken(const Exchange& message) { ++messages_[key(message)]; }
  // Whether the member puts in what it put in then; nullopt where that is not known.
  std::optional<bool> is_same(const Exchange& exchange, const Arrival& arrival, const SharedMemory& memory) const;

 private:
  using Key = std::tuple<std::string, int, int, int>;  // group, source, destination, tag
  static Key key(const Exchange& message);
  std::shared_ptr<const RecordedData> data_;
  std::map<Key, std::int64_t> messages_;  // that were taken
};

}  // namespace prism
