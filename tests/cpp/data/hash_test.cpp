// The name of a content: the published algorithm, and no two different tensors under one name.
#include "data/hash.hpp"

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "catch2.hpp"

using namespace prism;

TEST_CASE("content hashes are those of MurmurHash3 x64 128, by its authors' verification value") {
  // SMHasher's procedure: keys of 0 to 255 bytes {}, {0}, {0, 1}, ... with seeds 256 - length, then all results at
  // once.
  std::vector<std::byte> key, results;
  const auto append = [&](ContentHash hash) {
    std::array<std::byte, 16> bytes;
    std::memcpy(bytes.data(), &hash.low, 8);
    std::memcpy(bytes.data() + 8, &hash.high, 8);
    results.insert(results.end(), bytes.begin(), bytes.end());
  };
  for (std::uint32_t length = 0; length < 256; ++length) {
    append(content_hash(key, 256 - length));
    key.push_back(static_cast<std::byte>(length));
  }
  REQUIRE((content_hash(results).low & 0xffffffff) == 0x6384ba69);
}

TEST_CASE("tensors that differ in one bit, in length or in order have different names") {
  std::set<ContentHash> seen;
  std::vector<std::byte> tensor(100);
  for (std::size_t bit = 0; bit < tensor.size() * 8; ++bit) {
    tensor[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    REQUIRE(seen.insert(content_hash(tensor)).second);
    tensor[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  for (std::size_t length = 0; length < 100; ++length)
    REQUIRE(seen.insert(content_hash(std::span(tensor).first(length))).second);
  InputsDigest forth, back;
  const ContentHash one{1, 2}, other{3, 4};
  forth.add(8, one), forth.add(8, other);
  back.add(8, other), back.add(8, one);
  REQUIRE(forth.value() != back.value());
}
