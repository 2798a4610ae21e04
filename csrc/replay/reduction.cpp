#include "replay/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "replay/small_float.hpp"

namespace prism {
namespace {

using Complex = std::complex<double>;

// How one element type is kept (`Stored`) and reduced (`Sum`, the accumulation type).
template <typename StoredT, typename SumT>
struct Arithmetic {
  using Stored = StoredT;
  using Sum = SumT;
  static constexpr bool kIsSmall = requires(Stored s) { s.bits; };
  static Sum load(const Stored& stored) {
    if constexpr (kIsSmall)
      return stored.value();
    else
      return static_cast<Sum>(stored);
  }
  static Stored store(const Sum& sum) {
    if constexpr (kIsSmall)
      return Stored::of(sum);
    else
      return static_cast<Stored>(sum);
  }
};

// Integers wrap around; so they are counted without a sign, in at least 32 bits, lest they be promoted to int.
template <typename T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <typename Sum>
Sum combined(ReduceOp op, const Sum& a, const Sum& b) {
  if constexpr (std::is_same_v<Sum, bool>) {
    return op == ReduceOp::kBitXor                                                       ? a != b
           : op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBitAnd ? a && b
                                                                                         : a || b;
  } else if constexpr (std::is_integral_v<Sum>) {
    using U = Wrapping<Sum>;
    const U x = static_cast<U>(a), y = static_cast<U>(b);
    switch (op) {
      case ReduceOp::kProduct:
        return static_cast<Sum>(x * y);
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kBitAnd:
        return static_cast<Sum>(x & y);
      case ReduceOp::kBitOr:
        return static_cast<Sum>(x | y);
      case ReduceOp::kBitXor:
        return static_cast<Sum>(x ^ y);
      default:
        return static_cast<Sum>(x + y);
    }
  } else if constexpr (std::is_floating_point_v<Sum>) {
    // Of a number and a NaN the smaller and the larger are the NaN.
    if (op == ReduceOp::kMin) return std::isnan(a) || a < b ? a : b;
    if (op == ReduceOp::kMax) return std::isnan(a) || a > b ? a : b;
    return op == ReduceOp::kProduct ? a * b : a + b;
  } else {
    return op == ReduceOp::kProduct ? a * b : a + b;
  }
}

// x + -0.0 is x, also where x is -0.0; x + 0.0 is not.
template <typename A>
typename A::Stored identity(ReduceOp op) {
  using Sum = typename A::Sum;
  if constexpr (std::is_same_v<Sum, bool>) {
    return op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBitAnd;
  } else if constexpr (std::is_integral_v<Sum>) {
    using Stored = typename A::Stored;
    if (op == ReduceOp::kProduct) return 1;
    if (op == ReduceOp::kMin) return std::numeric_limits<Stored>::max();
    if (op == ReduceOp::kMax) return std::numeric_limits<Stored>::min();
    return op == ReduceOp::kBitAnd ? static_cast<Stored>(~Stored{0}) : Stored{0};
  } else if constexpr (std::is_floating_point_v<Sum>) {
    if (op == ReduceOp::kProduct) return A::store(1);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return A::store(-Sum{0});
    Sum most = std::numeric_limits<Sum>::infinity();
    if constexpr (std::is_same_v<typename A::Stored, Float8E4M3FN>) most = 448;
    return A::store(op == ReduceOp::kMin ? most : -most);
  } else {
    return op == ReduceOp::kProduct ? A::store(Sum(1, 0)) : A::store(Sum(-0.0, -0.0));
  }
}

bool is_bitwise(ReduceOp op) { return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor; }
bool is_ordered(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

// Calls do(Arithmetic<...>{}); false where the reduction is not defined.
template <typename Do>
bool with_arithmetic(DType dtype, ReduceOp op, Do&& act) {
  if (op == ReduceOp::kNone || op >= ReduceOp::kCount) return false;
  const auto whole = [&](auto zero) {
    using T = decltype(zero);
    act(Arithmetic<T, T>{});
    return true;
  };
  const auto real = [&](auto arithmetic) {
    if (is_bitwise(op)) return false;
    act(arithmetic);
    return true;
  };
  const auto complex = [&](auto arithmetic) {
    if (is_bitwise(op) || is_ordered(op)) return false;
    act(arithmetic);
    return true;
  };
  // An average of these is summed in int64.
  const auto widened = [&](auto zero) {
    using T = decltype(zero);
    if (op != ReduceOp::kAvg) return whole(zero);
    act(Arithmetic<T, std::int64_t>{});
    return true;
  };
  switch (dtype) {
    case DType::kFloat64:
      return real(Arithmetic<double, double>{});
    case DType::kFloat32:
      return is_ordered(op) ? real(Arithmetic<float, float>{}) : real(Arithmetic<float, double>{});
    case DType::kFloat16:
      return real(Arithmetic<Float16, float>{});
    case DType::kBFloat16:
      return real(Arithmetic<BFloat16, float>{});
    case DType::kFloat8E4M3FN:
      return real(Arithmetic<Float8E4M3FN, float>{});
    case DType::kFloat8E5M2:
      return real(Arithmetic<Float8E5M2, float>{});
    case DType::kComplex64:
      return complex(Arithmetic<std::complex<float>, Complex>{});
    case DType::kComplex128:
      return complex(Arithmetic<Complex, Complex>{});
    case DType::kInt64:
      return whole(std::int64_t{});
    case DType::kInt32:
      return whole(std::int32_t{});
    case DType::kInt16:
      return whole(std::int16_t{});
    case DType::kInt8:
      return whole(std::int8_t{});
    case DType::kUInt8:
      return whole(std::uint8_t{});
    case DType::kUInt16:
      return widened(std::uint16_t{});
    case DType::kUInt32:
      return widened(std::uint32_t{});
    case DType::kUInt64:
      return op != ReduceOp::kAvg && whole(std::uint64_t{});
    case DType::kBool:
      return op != ReduceOp::kAvg && whole(bool{});
    default:
      return false;
  }
}

// Buffers need not be aligned, and a bool may be any byte.
template <typename T>
T loaded(const std::byte* bytes, std::size_t index) {
  if constexpr (std::is_same_v<T, bool>) return bytes[index] != std::byte{0};
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void stored(std::byte* bytes, std::size_t index, const T& value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

Error undefined(DType dtype, ReduceOp op) {
  return {ErrorCode::kInvalidInput, fmt::format("reduction '{}' is not defined for {} tensors", name(op), name(dtype))};
}

template <typename T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, Complex>) return DType::kComplex128;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kInt64;
  return DType::kNone;
}

}  // namespace

DType accumulation_type(DType dtype, ReduceOp op) {
  DType found = DType::kNone;
  with_arithmetic(dtype, op, [&]<typename A>(A) {
    found = std::is_same_v<typename A::Stored, typename A::Sum> ? dtype : type_of<typename A::Sum>();
  });
  return found;
}

Result<void> fill_identity(DType dtype, ReduceOp op, std::span<std::byte> out) {
  const bool done = with_arithmetic(dtype, op, [&]<typename A>(A) {
    const auto value = identity<A>(op);
    for (std::size_t i = 0; i < out.size() / sizeof(value); ++i) stored(out.data(), i, value);
  });
  if (!done) return undefined(dtype, op);
  return {};
}

Result<void> reduce(DType dtype, ReduceOp op, std::size_t count, const std::byte* virtual_part,
                    std::span<const std::byte* const> sources, std::byte* out) {
  if (virtual_part == nullptr && sources.empty())
    return Error{ErrorCode::kInternal, "a reduction of nothing; accepted: a virtual part or a source"};
  const bool done = with_arithmetic(dtype, op, [&]<typename A>(A) {
    using Stored = typename A::Stored;
    using Sum = typename A::Sum;
    const auto rest = virtual_part == nullptr ? sources.subspan(1) : sources;
    const auto all = [&](auto by) {
      for (std::size_t i = 0; i < count; ++i) {
        Sum sum = virtual_part == nullptr ? A::load(loaded<Stored>(sources[0], i)) : loaded<Sum>(virtual_part, i);
        for (const std::byte* source : rest) sum = combined<Sum>(by, sum, A::load(loaded<Stored>(source, i)));
        stored(out, i, A::store(sum));
      }
    };
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg)
      all(std::integral_constant<ReduceOp, ReduceOp::kSum>{});  // known when compiled
    else
      all(op);
  });
  if (!done) return undefined(dtype, op);
  return {};
}

Result<void> divide(DType dtype, int members, std::span<std::byte> sums) {
  const bool done = with_arithmetic(dtype, ReduceOp::kAvg, [&]<typename A>(A) {
    using Stored = typename A::Stored;
    for (std::size_t i = 0; i < sums.size() / sizeof(Stored); ++i) {
      typename A::Sum sum = A::load(loaded<Stored>(sums.data(), i));
      if constexpr (std::is_integral_v<typename A::Sum>)
        stored(sums.data(), i, static_cast<Stored>(static_cast<std::int64_t>(sum) / members));
      else
        stored(sums.data(), i, A::store(sum / static_cast<typename A::Sum>(members)));
    }
  });
  if (!done) return undefined(dtype, ReduceOp::kAvg);
  return {};
}

}  // namespace prism
