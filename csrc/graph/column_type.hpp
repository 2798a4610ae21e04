// Names of the element types of columns in a safetensors container.
#pragma once
#include <cstdint>
#include <type_traits>

namespace prism {

template <typename T>
constexpr const char* container_dtype() {
  if constexpr (std::is_same_v<T, std::int64_t>) return "I64";
  if constexpr (std::is_same_v<T, std::uint64_t>) return "U64";
  if constexpr (std::is_same_v<T, std::int32_t>) return "I32";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "U32";
  if constexpr (std::is_same_v<T, std::uint16_t>) return "U16";
  if constexpr (std::is_same_v<T, std::uint8_t>) return "U8";
}

}  // namespace prism
