// Collectives of tensors of every element type, whole and pruned, by the arithmetic of csrc/replay/reduction.hpp.
#pragma once
#include <cstring>

#include "replay/reduction.hpp"
#include "replay/small_float.hpp"
#include "replay/whole.hpp"

namespace prism::test {

using Chunk = std::vector<std::byte>;

// Of real types; of complex ones the real part.
inline double value_at(DType dtype, const Chunk& chunk, std::size_t index) {
  const std::byte* at = chunk.data() + index * element_size(dtype);
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return as(double{});
    case DType::kFloat32:
    case DType::kComplex64:
      return as(float{});
    case DType::kFloat16:
      return as(Float16{}).value();
    case DType::kBFloat16:
      return as(BFloat16{}).value();
    case DType::kFloat8E4M3FN:
      return as(Float8E4M3FN{}).value();
    case DType::kFloat8E5M2:
      return as(Float8E5M2{}).value();
    default:
      FAIL("no real numbers of " << name(dtype));
      return 0;
  }
}

// The nearest of the type; whole numbers modulo its range. Complex: value + 0.5 value i.
inline void put(DType dtype, Chunk& chunk, std::size_t index, double value) {
  std::byte* at = chunk.data() + index * element_size(dtype);
  const auto keep = [&](auto stored) { std::memcpy(at, &stored, sizeof(stored)); };
  const auto narrow = static_cast<float>(value);
  const auto whole = static_cast<std::int64_t>(value);
  switch (dtype) {
    case DType::kFloat64:
      return keep(value);
    case DType::kFloat32:
      return keep(narrow);
    case DType::kFloat16:
      return keep(Float16::of(narrow));
    case DType::kBFloat16:
      return keep(BFloat16::of(narrow));
    case DType::kFloat8E4M3FN:
      return keep(Float8E4M3FN::of(narrow));
    case DType::kFloat8E5M2:
      return keep(Float8E5M2::of(narrow));
    case DType::kComplex64: {
      const float parts[] = {narrow, 0.5f * narrow};
      std::memcpy(at, parts, sizeof(parts));
      return;
    }
    case DType::kComplex128: {
      const double parts[] = {value, 0.5 * value};
      std::memcpy(at, parts, sizeof(parts));
      return;
    }
    case DType::kBool:
      return keep(static_cast<std::uint8_t>(whole & 1));
    default:
      std::memcpy(at, &whole, element_size(dtype));  // little-endian
  }
}

// The same in the accumulation type, where no rounding is.
inline void widen(DType dtype, const Chunk& chunk, DType wide, Chunk& out, std::size_t count) {
  out.resize(count * element_size(wide));
  if (wide == dtype) {
    std::memcpy(out.data(), chunk.data(), out.size());
    return;
  }
  const auto size = element_size(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    if (wide == DType::kInt64) {  // of uint16 and uint32
      std::memset(out.data() + i * 8, 0, 8);
      std::memcpy(out.data() + i * 8, chunk.data() + i * size, size);
    } else if (wide == DType::kComplex128) {
      float parts[2];
      std::memcpy(parts, chunk.data() + i * size, sizeof(parts));
      const double both[] = {parts[0], parts[1]};
      std::memcpy(out.data() + i * 16, both, sizeof(both));
    } else {
      put(wide, out, i, value_at(dtype, chunk, i));
    }
  }
}

struct Typed {
  DType dtype;
  ReduceOp op;
  std::size_t count;                // elements of a chunk
  std::vector<Chunk> virtual_part;  // by chunk, in the accumulation type

  Chunk identity() const {
    Chunk chunk(count * element_size(dtype));
    REQUIRE(fill_identity(dtype, op, chunk).ok());
    return chunk;
  }
  void reduce(Chunk& own, const Chunk& came) const {
    const std::byte* sources[] = {own.data(), came.data()};
    REQUIRE(prism::reduce(dtype, op, count, nullptr, sources, own.data()).ok());
  }
  Chunk combine(bool with_virtual_part, int chunk, const std::vector<const Chunk*>& sources) const {
    std::vector<const std::byte*> bytes;
    for (const auto* source : sources) bytes.push_back(source->data());
    Chunk out(count * element_size(dtype));
    REQUIRE(prism::reduce(dtype, op, count, with_virtual_part ? virtual_part[chunk].data() : nullptr, bytes, out.data())
                .ok());
    return out;
  }
};

// An all-reduce, reduce-scatter or reduce of such tensors; every member's inputs are known.
struct TypedCollective {
  Collective collective;
  std::unique_ptr<simulate::Schedule> schedule;
  Typed arithmetic;
  std::vector<std::vector<Chunk>> inputs;  // [member][chunk]

  // `value(member)` draws one.
  template <typename Value>
  TypedCollective(Op op, const char* algorithm, int members, DType dtype, ReduceOp reduce_op, std::size_t count,
                  Value&& value)
      : collective{{.op = op, .members = members}, algorithm},
        schedule(simulate::make_schedule(collective.shape, algorithm).value()),
        arithmetic{dtype, reduce_op, count, {}} {
    for (int member = 0; member < members; ++member) {
      inputs.emplace_back();
      for (int chunk = 0; chunk < schedule->chunks(); ++chunk) {
        inputs.back().emplace_back(count * element_size(dtype));
        for (std::size_t i = 0; i < count; ++i) put(dtype, inputs.back().back(), i, value(member));
      }
    }
  }

  std::vector<std::vector<Chunk>> unpruned() const {
    return execute_literally(*schedule, inputs, [&](Chunk& own, const Chunk& came) { arithmetic.reduce(own, came); });
  }

  // As a capture keeps it: in group-rank order, in the accumulation type.
  Typed with_virtual_part(const Set& sandbox) const {
    Typed typed = arithmetic;
    const DType wide = accumulation_type(typed.dtype, typed.op);
    for (int chunk = 0; chunk < schedule->chunks(); ++chunk) {
      Chunk part, next;
      for (int member = 0; member < collective.shape.members; ++member) {
        if (std::binary_search(sandbox.begin(), sandbox.end(), member)) continue;
        widen(typed.dtype, inputs[member][chunk], wide, next, typed.count);
        if (part.empty()) {
          part = next;
          continue;
        }
        // float32 on its own would be accumulated in float64; float32 that stands for smaller types is not.
        accumulate(wide, typed.op, typed.count, part, next);
      }
      typed.virtual_part.push_back(std::move(part));
    }
    return typed;
  }

  std::vector<std::vector<Chunk>> pruned(const Set& sandbox) const {
    const auto plan = prune(collective.shape, collective.algorithm, sandbox).value();
    std::vector<std::vector<Chunk>> own;
    for (const int member : sandbox) own.push_back(inputs[member]);
    auto typed = with_virtual_part(sandbox);
    execute_in_steps(plan, own, typed);
    return own;
  }

  static void accumulate(DType wide, ReduceOp op, std::size_t count, Chunk& part, const Chunk& next) {
    if (wide == DType::kFloat32 && op != ReduceOp::kMin && op != ReduceOp::kMax) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto a = static_cast<float>(value_at(wide, part, i)), b = static_cast<float>(value_at(wide, next, i));
        put(wide, part, i, op == ReduceOp::kProduct ? a * b : a + b);
      }
      return;
    }
    const std::byte* sources[] = {part.data(), next.data()};
    REQUIRE(prism::reduce(wide, op, count, nullptr, sources, part.data()).ok());
  }
};

}  // namespace prism::test
