#include "data/hash.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

namespace prism {
namespace {

constexpr std::uint64_t kFirst = 0x87c37b91114253d5, kSecond = 0x4cf5ad432745937f;

std::uint64_t scramble(std::uint64_t k, std::uint64_t before, int turn, std::uint64_t after) {
  return std::rotl(k * before, turn) * after;
}

std::uint64_t avalanche(std::uint64_t k) {
  k = (k ^ k >> 33) * 0xff51afd7ed558ccd;
  k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53;
  return k ^ k >> 33;
}

}  // namespace

ContentHash content_hash(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint64_t a = seed, b = seed;
  std::array<std::uint64_t, 2> lane;
  std::size_t left = bytes.size();
  const std::byte* at = bytes.data();
  for (; left >= sizeof lane; left -= sizeof lane, at += sizeof lane) {
    std::memcpy(&lane, at, sizeof lane);
    a = std::rotl(a ^ scramble(lane[0], kFirst, 31, kSecond), 27);
    a = (a + b) * 5 + 0x52dce729;
    b = std::rotl(b ^ scramble(lane[1], kSecond, 33, kFirst), 31);
    b = (b + a) * 5 + 0x38495ab5;
  }
  if (left != 0) {
    lane = {};
    std::memcpy(&lane, at, left);
    a ^= scramble(lane[0], kFirst, 31, kSecond);
    b ^= scramble(lane[1], kSecond, 33, kFirst);
  }
  a ^= bytes.size();
  b ^= bytes.size();
  a += b;
  b += a;
  a = avalanche(a);
  b = avalanche(b);
  a += b;
  return {a, b + a};
}

std::string to_hex(ContentHash hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

void InputsDigest::add(std::uint64_t bytes, ContentHash hash) {
  const std::array<std::uint64_t, 5> chain{value_.low, value_.high, bytes, hash.low, hash.high};
  value_ = content_hash(std::as_bytes(std::span(chain)));
}

}  // namespace prism
