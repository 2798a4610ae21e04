// Bytes of one message: little-endian scalars, counted strings and lists. What is read was written by another process
// and is not trusted: a Reader never leaves its span, and one bad length, count or enumerator makes it fail for good.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism::wire {

static_assert(std::endian::native == std::endian::little, "hosts of another byte order do not meet");

using Buffer = std::vector<std::uint8_t>;

// Limits of what one message may carry.
inline constexpr std::size_t kMaxPieces = 1 << 20;        // regions of one operation
inline constexpr std::size_t kMaxDimensions = 64;         // of one tensor
inline constexpr std::size_t kMaxValueBytes = 64u << 20;  // a key, a value or a text
inline constexpr std::size_t kMaxIds = 1 << 20;           // operations named at once, keys named at once, group members

// The number of enumerators of an enum that travels.
template <typename Enum>
constexpr std::uint64_t enumerators() {
  if constexpr (std::is_same_v<Enum, ErrorCode>)
    return static_cast<std::uint64_t>(ErrorCode::kInternal) + 1;
  else
    return static_cast<std::uint64_t>(Enum::kCount);
}

class Writer {
 public:
  static constexpr bool kReads = false;
  explicit Writer(Buffer& out) : out_(out) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void value(const T& value) { bytes(&value, sizeof value); }
  template <typename Bytes>
  void blob(const Bytes& blob) {
    value(static_cast<std::uint32_t>(blob.size()));
    bytes(blob.data(), blob.size());
  }
  template <typename List, typename Each>
  void list(const List& list, std::size_t, Each each) {
    value(static_cast<std::uint32_t>(list.size()));
    for (const auto& item : list) each(*this, item);
  }
  // The last field, without a length.
  void rest(std::span<const std::uint8_t> all) { bytes(all.data(), all.size()); }
  // Mostly equal sizes, as of the N outputs of an all_gather: one number stands for all where they are.
  void sizes(const std::vector<std::uint64_t>& sizes) {
    value(static_cast<std::uint32_t>(sizes.size()));
    if (sizes.empty()) return;
    bool uniform = true;
    for (const auto size : sizes) uniform = uniform && size == sizes[0];
    value(uniform);
    bytes(sizes.data(), (uniform ? 1 : sizes.size()) * sizeof sizes[0]);
  }

 private:
  void bytes(const void* data, std::size_t count) {
    const auto* first = static_cast<const std::uint8_t*>(data);
    out_.insert(out_.end(), first, first + count);
  }
  Buffer& out_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::span<const std::uint8_t> in) : in_(in) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void value(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> raw{};
      bytes(&raw, sizeof raw);
      if (static_cast<std::uint64_t>(raw) >= enumerators<T>()) return fail();
      value = static_cast<T>(raw);
    } else if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t raw = 0;
      bytes(&raw, 1);
      if (raw > 1) return fail();
      value = raw == 1;
    } else {
      bytes(&value, sizeof value);
    }
  }
  template <typename Bytes>
  void blob(Bytes& blob) {
    const std::size_t size = count(kMaxValueBytes, 1);
    if (failed_) return;
    const auto* first = reinterpret_cast<const typename Bytes::value_type*>(in_.data());
    blob.assign(first, first + size);
    in_ = in_.subspan(size);
  }
  template <typename List, typename Each>
  void list(List& list, std::size_t limit, Each each) {
    const std::size_t size = count(limit, 1);
    list.clear();
    for (std::size_t i = 0; i < size && !failed_; ++i) each(*this, list.emplace_back());
  }
  void rest(std::span<const std::uint8_t>& all) { all = std::exchange(in_, {}); }  // a view of what is read
  void sizes(std::vector<std::uint64_t>& sizes) {
    const std::size_t size = count(kMaxPieces, 0);
    sizes.clear();
    if (failed_ || size == 0) return;
    bool uniform = false;
    value(uniform);
    if (!uniform && size > in_.size() / sizeof(std::uint64_t)) return fail();
    std::uint64_t first = 0;
    if (uniform) value(first);
    if (failed_) return;
    sizes.assign(size, first);
    if (!uniform) bytes(sizes.data(), size * sizeof(std::uint64_t));
  }
  // Whether everything was there and nothing is left over.
  bool complete() const { return !failed_ && in_.empty(); }

 private:
  void fail() { failed_ = true; }
  // A count whose items take at least `least` bytes each, so that a short message cannot ask for much memory.
  std::size_t count(std::size_t limit, std::size_t least) {
    std::uint32_t raw = 0;
    value(raw);
    if (raw > limit || raw * least > in_.size()) fail();
    return failed_ ? 0 : raw;
  }
  void bytes(void* data, std::size_t count) {
    if (failed_ || count > in_.size()) return fail();
    std::memcpy(data, in_.data(), count);
    in_ = in_.subspan(count);
  }
  std::span<const std::uint8_t> in_;
  bool failed_ = false;
};

}  // namespace prism::wire
