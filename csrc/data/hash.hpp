// The name of a tensor's content: MurmurHash3 (x64, 128 bits). 5 GB/s on one core, where BLAKE2 and SHA-256 would slow
// the capture that they serve; nobody gains from forging a collision in tensors of their own, and by chance two of 2^32
// different tensors collide with a probability of 2^-65, so that equal hashes (of one type and length) need no
// comparison.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace prism {

struct ContentHash {
  std::uint64_t low = 0, high = 0;
  auto operator<=>(const ContentHash&) const = default;
};

ContentHash content_hash(std::span<const std::byte> bytes, std::uint32_t seed = 0);
std::string to_hex(ContentHash hash);  // 32 digits, high half first

// Of what one member put into one communication: its tensors' lengths and hashes, in order.
class InputsDigest {
 public:
  void add(std::uint64_t bytes, ContentHash hash);
  ContentHash value() const { return value_; }

 private:
  ContentHash value_;
};

}  // namespace prism
