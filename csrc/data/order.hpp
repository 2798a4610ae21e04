// The one order of tensors and communications in an index: it depends on what they are, never on when they came.
#pragma once
#include <cstdint>
#include <tuple>

#include "core/vocabulary.hpp"
#include "data/hash.hpp"

namespace prism {

// Wide types first, so that a shard's tensors are aligned without gaps.
inline auto tensor_key(DType dtype, std::uint64_t bytes, ContentHash hash) {
  const int narrow = -static_cast<int>(element_size(dtype));
  return std::tuple(narrow, dtype, hash.high, hash.low, bytes);
}

template <typename Columns>
auto tensor_key(const Columns& c, std::size_t i) {
  return tensor_key(static_cast<DType>(c.tensor_dtype[i]), c.tensor_bytes[i],
                    ContentHash{c.tensor_low[i], c.tensor_high[i]});
}

// Collectives (source and destination -1) by number, before messages.
inline auto comm_key(std::uint32_t group, std::int32_t source, std::int32_t destination, std::int32_t tag,
                     std::int64_t seq) {
  return std::tuple(group, source, destination, tag, seq);
}

template <typename Columns>
auto comm_key(const Columns& c, std::size_t i) {
  return comm_key(c.comm_group[i], c.comm_source[i], c.comm_destination[i], c.comm_tag[i], c.comm_seq[i]);
}

}  // namespace prism
