// Floats of 16 and 8 bits: exact values as float, and back, rounded to nearest, ties to even.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace prism {

// `Finite`: without infinities; all bits but the sign set is the only NaN (float8_e4m3fn).
template <typename Bits, int kExponent, int kMantissa, bool kFinite = false>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr std::uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr std::uint32_t kInfinity = ((1u << kExponent) - 1) << kMantissa;  // the highest exponent
  static constexpr std::uint32_t kNan = kFinite ? kSign - 1 : kInfinity | 1u << (kMantissa - 1);
  // The first magnitude that is no number.
  static constexpr std::uint32_t kEnd = kFinite ? kSign - 1 : kInfinity;

  Bits bits;

  static SmallFloat of(float value) {
    const auto whole = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (whole >> 31) << (kExponent + kMantissa);
    if (std::isnan(value)) return {static_cast<Bits>(sign | kNan)};
    return {static_cast<Bits>(sign | magnitude(whole & 0x7fffffffu))};
  }
  float value() const {
    const std::uint32_t code = bits & (kSign - 1);
    const float size = code >= kEnd ? (kFinite || code > kInfinity ? NAN : INFINITY) : finite(code);
    return (bits & kSign) != 0 ? -size : size;
  }

 private:
  // Of the least positive number.
  static constexpr double kStepsOfOne =
      std::bit_cast<double>(static_cast<std::uint64_t>(1023 + kBias - 1 + kMantissa) << 52);
  // float's own layout: 8 bits of exponent, 23 of mantissa, bias 127.
  static std::uint32_t magnitude(std::uint32_t whole) {
    constexpr int kDropped = 23 - kMantissa;
    constexpr std::uint32_t kLeastNormal = static_cast<std::uint32_t>(127 - kBias + 1) << 23;
    std::uint32_t code = 0;
    if (whole < kLeastNormal) {  // a multiple of the least positive number
      const double steps = double{std::bit_cast<float>(whole)} * kStepsOfOne;
      code = static_cast<std::uint32_t>(steps + 0x1p52 - 0x1p52);  // to nearest
    } else {
      const std::uint32_t odd = whole >> kDropped & 1;
      code = ((whole + (1u << (kDropped - 1)) - 1 + odd) >> kDropped) -
             (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
    }
    return code < kEnd ? code : kEnd;
  }
  static float finite(std::uint32_t code) {
    if (code >> kMantissa == 0) return static_cast<float>(code / kStepsOfOne);
    return std::bit_cast<float>((code << (23 - kMantissa)) + (static_cast<std::uint32_t>(127 - kBias) << 23));
  }
};

using Float16 = SmallFloat<std::uint16_t, 5, 10>;
using BFloat16 = SmallFloat<std::uint16_t, 8, 7>;
using Float8E5M2 = SmallFloat<std::uint8_t, 5, 2>;
using Float8E4M3FN = SmallFloat<std::uint8_t, 4, 3, true>;

}  // namespace prism
