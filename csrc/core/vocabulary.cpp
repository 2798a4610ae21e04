#include "core/vocabulary.hpp"

#include <array>

namespace prism {
namespace {

#define PRISM_NAME2(id, name) std::string_view(name),
#define PRISM_NAME3(id, name, size) std::string_view(name),
#define PRISM_SIZE3(id, name, size) std::size_t(size),
constexpr std::array kOpNames = {PRISM_OPS(PRISM_NAME2)};
constexpr std::array kDTypeNames = {PRISM_DTYPES(PRISM_NAME3)};
constexpr std::array kDTypeSizes = {PRISM_DTYPES(PRISM_SIZE3)};
constexpr std::array kReduceOpNames = {PRISM_REDUCE_OPS(PRISM_NAME2)};
#undef PRISM_NAME2
#undef PRISM_NAME3
#undef PRISM_SIZE3

template <typename Names, typename Enum>
std::string_view name_of(const Names& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : std::string_view("invalid");
}

template <typename Enum, typename Names>
std::optional<Enum> value_of(const Names& names, std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name(Op op) { return name_of(kOpNames, op); }
std::string_view name(DType dtype) { return name_of(kDTypeNames, dtype); }
std::string_view name(ReduceOp op) { return name_of(kReduceOpNames, op); }
std::optional<Op> op_from_name(std::string_view text) { return value_of<Op>(kOpNames, text); }
std::optional<DType> dtype_from_name(std::string_view text) { return value_of<DType>(kDTypeNames, text); }
std::optional<ReduceOp> reduce_op_from_name(std::string_view text) { return value_of<ReduceOp>(kReduceOpNames, text); }

bool is_whole(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
    case DType::kInt32:
    case DType::kInt16:
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kBool:
      return true;
    default:
      return false;
  }
}

std::size_t element_size(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kDTypeSizes.size() ? kDTypeSizes[index] : 0;
}

}  // namespace prism
