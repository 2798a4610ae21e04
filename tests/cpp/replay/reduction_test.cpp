// The arithmetic of pruned collectives, element by element, against what the types mean.
#include "replay/reduction.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <tuple>

#include "catch2.hpp"
#include "collective_inputs.hpp"
#include "replay/small_float.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// (-1)^sign 2^(exponent - bias) (1 + mantissa / 2^bits), and without the 1 below the least exponent.
double by_definition(unsigned code, int exponents, int mantissas) {
  const int mantissa = static_cast<int>(code & ((1u << mantissas) - 1));
  const int exponent = static_cast<int>(code >> mantissas & ((1u << exponents) - 1));
  const int bias = (1 << (exponents - 1)) - 1;
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissas);
  return std::ldexp((1 << mantissas) + mantissa, exponent - bias - mantissas);
}

template <typename Float>
void check_format(int exponents, int mantissas, unsigned finite) {
  using Bits = decltype(Float::bits);
  std::vector<double> numbers;  // by code, without a sign
  for (unsigned code = 0; code < finite; ++code) {
    numbers.push_back(by_definition(code, exponents, mantissas));
    const Float positive{static_cast<Bits>(code)}, negative{static_cast<Bits>(code | 1u << (exponents + mantissas))};
    REQUIRE(positive.value() == numbers.back());
    REQUIRE(negative.value() == -numbers.back());
    REQUIRE(Float::of(positive.value()).bits == positive.bits);
    REQUIRE(Float::of(negative.value()).bits == negative.bits);
  }
  // Between two numbers the nearer one, in the middle the even one.
  for (unsigned code = 0; code + 1 < finite; ++code) {
    const auto middle = static_cast<float>((numbers[code] + numbers[code + 1]) / 2);
    REQUIRE(middle == (numbers[code] + numbers[code + 1]) / 2);
    REQUIRE(Float::of(middle).bits == code + code % 2);
    REQUIRE(Float::of(std::nextafter(middle, 0.0f)).bits == code);
    REQUIRE(Float::of(std::nextafter(middle, INFINITY)).bits == code + 1);
  }
  CHECK(std::isnan(Float::of(NAN).value()));
  CHECK(std::isnan(Float::of(-NAN).value()));
  CHECK(std::signbit(Float::of(-0.0f).value()));
}

template <typename T>
T reduced(DType dtype, ReduceOp op, const std::vector<T>& values) {
  std::vector<const std::byte*> sources;
  for (const T& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  T out;
  REQUIRE(reduce(dtype, op, 1, nullptr, sources, reinterpret_cast<std::byte*>(&out)).ok());
  return out;
}

// Modulo 2^bits, by the arithmetic of 128 bits.
template <typename T>
void check_whole(DType dtype) {
  __extension__ using Wide = unsigned __int128;
  Random random{static_cast<std::uint64_t>(dtype)};
  for (int round = 0; round < 300; ++round) {
    std::vector<T> values;
    for (int i = 0; i < 3; ++i) values.push_back(static_cast<T>(random()));
    Wide sum = 0, product = 1;
    T all = values[0], any = values[0], odd = 0;
    for (const T value : values) {
      sum += static_cast<Wide>(value), product *= static_cast<Wide>(value);
      all = static_cast<T>(all & value), any = static_cast<T>(any | value), odd = static_cast<T>(odd ^ value);
    }
    CHECK(reduced(dtype, ReduceOp::kSum, values) == static_cast<T>(sum));
    CHECK(reduced(dtype, ReduceOp::kProduct, values) == static_cast<T>(product));
    CHECK(reduced(dtype, ReduceOp::kMin, values) == *std::min_element(values.begin(), values.end()));
    CHECK(reduced(dtype, ReduceOp::kMax, values) == *std::max_element(values.begin(), values.end()));
    CHECK(reduced(dtype, ReduceOp::kBitAnd, values) == all);
    CHECK(reduced(dtype, ReduceOp::kBitOr, values) == any);
    CHECK(reduced(dtype, ReduceOp::kBitXor, values) == odd);
  }
}

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAvg,    ReduceOp::kProduct, ReduceOp::kMin,
                                ReduceOp::kMax, ReduceOp::kBitAnd, ReduceOp::kBitOr,   ReduceOp::kBitXor};

bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

// Of types whose values are few all of them, of others random bits. Of complex numbers that are multiplied: numbers
// whose products with 1 + 0i have no infinities and no zeros.
std::vector<std::byte> many_values(DType dtype, ReduceOp op, std::size_t count) {
  const auto size = element_size(dtype);
  std::vector<std::byte> values(count * size);
  Random random{8};
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits[] = {size <= 2 ? i : random(), random()};
    if (dtype == DType::kBool) bits[0] &= 1;
    if (is_complex(dtype) && op == ReduceOp::kProduct) {
      const double parts[] = {random.below(9) + 1.0, random.below(9) - 9.0};
      const float narrow[] = {static_cast<float>(parts[0]), static_cast<float>(parts[1])};
      std::memcpy(bits, dtype == DType::kComplex64 ? static_cast<const void*>(narrow) : parts, size);
    }
    std::memcpy(values.data() + i * size, bits, size);
  }
  return values;
}

template <typename T>
bool both_nan(const std::byte* a, const std::byte* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T)), std::memcpy(&y, b, sizeof(T));
  return std::isnan(x) && std::isnan(y);
}

// To the bit; but which NaN a NaN has become is no matter.
bool same(DType dtype, const std::byte* a, const std::byte* b) {
  const auto size = element_size(dtype);
  if (std::memcmp(a, b, size) == 0) return true;
  const auto part = is_complex(dtype) ? size / 2 : size;
  for (std::size_t at = 0; at < size; at += part)
    if (std::memcmp(a + at, b + at, part) != 0 &&
        !(part == 8 ? both_nan<double>(a + at, b + at) : part == 4 && both_nan<float>(a + at, b + at)))
      return false;
  return !is_whole(dtype);
}

}  // namespace

TEST_CASE("small floats are what their bits mean, and the nearest to a float") {
  check_format<Float16>(5, 10, 0x7c00);
  check_format<BFloat16>(8, 7, 0x7f80);
  check_format<Float8E5M2>(5, 2, 0x7c);
  check_format<Float8E4M3FN>(4, 3, 0x7f);
  // Up to the middle between the largest number and the next one that there would be.
  CHECK(Float16::of(65519.9f).value() == 65504);
  CHECK(std::isinf(Float16::of(65520).value()));
  CHECK(Float8E5M2::of(61439).value() == 57344);
  CHECK(std::isinf(Float8E5M2::of(61440).value()));
  CHECK(Float8E5M2::of(-INFINITY).bits == 0xfc);
  CHECK(std::isinf(BFloat16::of(3.4e38f).value()));
  CHECK(Float8E4M3FN::of(464).value() == 448);
  CHECK(std::isnan(Float8E4M3FN::of(464.1f).value()));
  CHECK(Float8E4M3FN::of(-INFINITY).bits == 0xff);
}

TEST_CASE("integers wrap around") {
  check_whole<std::int64_t>(DType::kInt64);
  check_whole<std::int32_t>(DType::kInt32);
  check_whole<std::int16_t>(DType::kInt16);
  check_whole<std::int8_t>(DType::kInt8);
  check_whole<std::uint8_t>(DType::kUInt8);
  check_whole<std::uint16_t>(DType::kUInt16);
  check_whole<std::uint32_t>(DType::kUInt32);
  check_whole<std::uint64_t>(DType::kUInt64);
}

TEST_CASE("bools are or and and, whatever byte is true") {
  const auto value = [](ReduceOp op, std::uint8_t a, std::uint8_t b) {
    return reduced<std::uint8_t>(DType::kBool, op, {a, b});
  };
  for (const std::uint8_t yes : {1, 2, 255}) {
    CHECK(value(ReduceOp::kSum, 0, yes) == 1);
    CHECK(value(ReduceOp::kMax, yes, yes) == 1);
    CHECK(value(ReduceOp::kProduct, yes, 0) == 0);
    CHECK(value(ReduceOp::kMin, yes, yes) == 1);
    CHECK(value(ReduceOp::kBitXor, yes, 1) == 0);
  }
}

TEST_CASE("floats accumulate in the next wider type and are rounded once") {
  // One by one the ones would be lost in float32, and in bfloat16.
  CHECK(reduced<float>(DType::kFloat32, ReduceOp::kSum, {16777216, 1, 1}) == 16777218);
  const auto bfloat = [](float value) { return BFloat16::of(value).bits; };
  CHECK(reduced<std::uint16_t>(DType::kBFloat16, ReduceOp::kSum, {bfloat(256), bfloat(1), bfloat(1)}) == bfloat(258));
  CHECK(reduced<double>(DType::kFloat64, ReduceOp::kSum, {0x1p53, 1, 1}) == 0x1p53);
  using Complex = std::complex<float>;
  CHECK(reduced<Complex>(DType::kComplex64, ReduceOp::kProduct, {{1, 2}, {3, -1}}) == Complex(5, 5));
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax})
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<float> values{1, 2, 3};
      values[place] = NAN;
      CHECK(std::isnan(reduced(DType::kFloat32, op, values)));
    }
}

TEST_CASE("a virtual part is in the accumulation type") {
  const double part = 1.0 + 0x1p-30;  // is no float32, and is not lost in a sum
  const float own = -1;
  float out = 0;
  const auto* source = reinterpret_cast<const std::byte*>(&own);
  const auto sum_with = [&](std::span<const std::byte* const> sources) {
    REQUIRE(reduce(DType::kFloat32, ReduceOp::kSum, 1, reinterpret_cast<const std::byte*>(&part), sources,
                   reinterpret_cast<std::byte*>(&out))
                .ok());
    return out;
  };
  CHECK(sum_with({&source, 1}) == 0x1p-30f);
  CHECK(sum_with({}) == 1);
  using Expected = std::tuple<DType, ReduceOp, DType>;  // docs/design/prismdata.md
  const std::vector<Expected> table = {{DType::kFloat64, ReduceOp::kSum, DType::kFloat64},
                                       {DType::kFloat32, ReduceOp::kAvg, DType::kFloat64},
                                       {DType::kFloat32, ReduceOp::kMax, DType::kFloat32},
                                       {DType::kFloat16, ReduceOp::kMax, DType::kFloat32},
                                       {DType::kBFloat16, ReduceOp::kProduct, DType::kFloat32},
                                       {DType::kFloat8E4M3FN, ReduceOp::kSum, DType::kFloat32},
                                       {DType::kFloat8E5M2, ReduceOp::kSum, DType::kFloat32},
                                       {DType::kComplex64, ReduceOp::kSum, DType::kComplex128},
                                       {DType::kInt8, ReduceOp::kSum, DType::kInt8},
                                       {DType::kUInt16, ReduceOp::kAvg, DType::kInt64},
                                       {DType::kUInt16, ReduceOp::kSum, DType::kUInt16},
                                       {DType::kUInt32, ReduceOp::kAvg, DType::kInt64},
                                       {DType::kBool, ReduceOp::kSum, DType::kBool},
                                       {DType::kUInt64, ReduceOp::kAvg, DType::kNone},
                                       {DType::kBool, ReduceOp::kAvg, DType::kNone},
                                       {DType::kFloat32, ReduceOp::kBitXor, DType::kNone},
                                       {DType::kComplex64, ReduceOp::kMin, DType::kNone},
                                       {DType::kNone, ReduceOp::kSum, DType::kNone},
                                       {DType::kInt32, ReduceOp::kNone, DType::kNone}};
  for (const auto& [dtype, op, type] : table) CHECK(accumulation_type(dtype, op) == type);
}

TEST_CASE("the identity leaves everything alone, to the bit") {
  int reductions = 0;
  for (int number = 1; number < static_cast<int>(DType::kCount); ++number)
    for (const ReduceOp op : kAllOps) {
      const auto dtype = static_cast<DType>(number);
      if (accumulation_type(dtype, op) == DType::kNone) continue;
      INFO(name(op) << " of " << name(dtype));
      ++reductions;
      const auto size = element_size(dtype);
      const std::size_t count = size == 1 ? 256 : size == 2 ? 65536 : 20'000;
      const auto values = many_values(dtype, op, count);
      std::vector<std::byte> identity(values.size()), out(values.size()), alone(values.size());
      REQUIRE(fill_identity(dtype, op, identity).ok());
      const std::byte* only[] = {values.data()};  // what rounding makes of a NaN is not the identity's doing
      REQUIRE(reduce(dtype, op, count, nullptr, only, alone.data()).ok());
      for (const bool first : {false, true}) {
        const std::byte* sources[] = {first ? identity.data() : values.data(), first ? values.data() : identity.data()};
        REQUIRE(reduce(dtype, op, count, nullptr, sources, out.data()).ok());
        int different = 0;
        for (std::size_t i = 0; i < count; ++i)
          different += !same(dtype, out.data() + i * size, alone.data() + i * size);
        CHECK(different == 0);
      }
    }
  // 6 floats by 5 reductions, 2 complex by 3, 8 integers by 8 but for the average of uint64, bool by 7.
  CHECK(reductions == 6 * 5 + 2 * 3 + 8 * 8 - 1 + 7);
}

TEST_CASE("averages are divided in the end, of integers towards zero") {
  std::int32_t whole[] = {7, -7};
  REQUIRE(divide(DType::kInt32, 4, std::as_writable_bytes(std::span(whole))).ok());
  CHECK(whole[0] == 1);
  CHECK(whole[1] == -1);
  std::uint16_t bfloat[] = {BFloat16::of(3).bits};
  REQUIRE(divide(DType::kBFloat16, 4, std::as_writable_bytes(std::span(bfloat))).ok());
  CHECK(bfloat[0] == BFloat16::of(0.75f).bits);
  CHECK(divide(DType::kBool, 4, {}).error().message == "reduction 'avg' is not defined for bool tensors");
}

TEST_CASE("a reduction that is not defined is refused by name") {
  std::byte out[8] = {};
  const std::byte* sources[] = {out};
  CHECK(reduce(DType::kFloat32, ReduceOp::kBitAnd, 1, nullptr, sources, out).error().message ==
        "reduction 'bit_and' is not defined for float32 tensors");
  CHECK(fill_identity(DType::kComplex64, ReduceOp::kMax, out).error().message ==
        "reduction 'max' is not defined for complex64 tensors");
  CHECK(reduce(DType::kFloat32, ReduceOp::kSum, 1, nullptr, {}, out).error().code == ErrorCode::kInternal);
}
