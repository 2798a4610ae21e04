#include "graph/container.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "graph/strict_json.hpp"

namespace prism {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors package

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kTypes = {
    ElementType{"I64", 8}, ElementType{"U64", 8},  ElementType{"F64", 8},     ElementType{"C64", 8},
    ElementType{"I32", 4}, ElementType{"U32", 4},  ElementType{"F32", 4},     ElementType{"I16", 2},
    ElementType{"U16", 2}, ElementType{"F16", 2},  ElementType{"BF16", 2},    ElementType{"I8", 1},
    ElementType{"U8", 1},  ElementType{"BOOL", 1}, ElementType{"F8_E4M3", 1}, ElementType{"F8_E5M2", 1}};

std::string accepted_types() {
  std::string text;
  for (const auto& type : kTypes) text += fmt::format("{}{}", text.empty() ? "" : ", ", type.name);
  return text;
}

Error corrupt(const std::string& path, std::string text) {
  return {ErrorCode::kCorruptFile, fmt::format("{}: {}", path, std::move(text))};
}

Result<ContainerEntry> parse_entry(const std::string& name, const nlohmann::json& json, const std::string& path) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets"))
    return corrupt(path, fmt::format("column '{:.80}' is not an object of dtype, shape and data_offsets", name));
  const auto& dtype = json["dtype"];
  const auto& shape = json["shape"];
  const auto& offsets = json["data_offsets"];
  if (!dtype.is_string() || container_element_size(dtype.get_ref<const std::string&>()) == 0)
    return corrupt(path,
                   fmt::format("column '{:.80}': dtype is {:.80}; accepted: {}", name, dtype.dump(), accepted_types()));
  if (!shape.is_array() || shape.size() != 1 || !shape[0].is_number_unsigned())
    return corrupt(path, fmt::format("column '{:.80}': shape is {:.80}; accepted: one length", name, shape.dump()));
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return corrupt(
        path, fmt::format("column '{:.80}': data_offsets is {:.80}; accepted: [begin, end]", name, offsets.dump()));
  return ContainerEntry{name, dtype.get<std::string>(), shape[0].get<std::uint64_t>(), offsets[0].get<std::uint64_t>(),
                        offsets[1].get<std::uint64_t>()};
}

// Data without hole or overlap from 0 to `bytes`; each column as long as its shape says, and aligned.
Result<void> check_places(const Container& container, std::uint64_t bytes, const std::string& path) {
  std::uint64_t expected = 0;
  for (const auto& entry : container.entries) {
    const auto size = container_element_size(entry.dtype);
    if (entry.begin != expected || entry.end < entry.begin || entry.end > bytes)
      return corrupt(path,
                     fmt::format("column '{:.80}': data_offsets is [{}, {}]; accepted: from {} on, up to {} bytes "
                                 "of data (the file may be truncated)",
                                 entry.name, entry.begin, entry.end, expected, bytes));
    if ((entry.end - entry.begin) % size != 0 || (entry.end - entry.begin) / size != entry.length)
      return corrupt(path, fmt::format("column '{:.80}': shape is [{}] of {} and data_offsets cover {} bytes",
                                       entry.name, entry.length, entry.dtype, entry.end - entry.begin));
    if ((container.data_start + entry.begin) % size != 0)
      return corrupt(path, fmt::format("column '{:.80}': begins at byte {} of the file; accepted: multiples of {}",
                                       entry.name, container.data_start + entry.begin, size));
    expected = entry.end;
  }
  if (expected != bytes)
    return corrupt(path, fmt::format("the columns end at byte {} of {} bytes of data", expected, bytes));
  return {};
}

}  // namespace

std::uint64_t container_element_size(std::string_view dtype) {
  const auto found = std::ranges::find(kTypes, dtype, &ElementType::name);
  return found == kTypes.end() ? 0 : found->bytes;
}

Result<Container> parse_container(std::string_view file, const std::string& path) {
  if (file.size() < kLengthBytes)
    return corrupt(path, fmt::format("the file has {} bytes; accepted: a .prism or .prismdata file of at least {}",
                                     file.size(), kLengthBytes + 2));
  std::uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);  // little-endian, as every supported machine
  const auto room = std::min<std::uint64_t>(file.size() - kLengthBytes, kMaxHeaderBytes);
  if (length < 2 || length > room)
    return corrupt(path, fmt::format("is this a .prism or .prismdata file? Its header length is {}; accepted: 2 to {}",
                                     length, room));
  Container container;
  container.data_start = kLengthBytes + length;
  PRISM_ASSIGN_OR_RETURN(const auto json,
                         parse_strict_json(file.substr(kLengthBytes, length), 3, path + ": the header"));
  if (!json.is_object()) return corrupt(path, "the header is not a JSON object");
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return corrupt(path, "__metadata__ is not a JSON object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return corrupt(path, fmt::format("__metadata__.{:.80} is not a string", key));
        container.metadata.emplace(key, text.get<std::string>());
      }
      continue;
    }
    PRISM_ASSIGN_OR_RETURN(auto entry, parse_entry(name, value, path));
    container.entries.push_back(std::move(entry));
  }
  std::ranges::sort(container.entries, {}, [](const auto& entry) { return std::tuple(entry.begin, entry.end); });
  PRISM_RETURN_IF_ERROR(check_places(container, file.size() - container.data_start, path));
  return container;
}

Result<std::string> container_header(const Container& container) {
  auto json = nlohmann::json::object();
  json["__metadata__"] = container.metadata;
  for (const auto& entry : container.entries)
    json[entry.name] = {{"dtype", entry.dtype}, {"shape", {entry.length}}, {"data_offsets", {entry.begin, entry.end}}};
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& error) {
    return Error{ErrorCode::kInvalidInput, fmt::format("a name in the trace is not UTF-8: {}", error.what())};
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("the header needs {} bytes; accepted: up to {}", text.size(), kMaxHeaderBytes)};
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

}  // namespace prism
