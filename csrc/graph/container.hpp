// The safetensors container: 8 bytes little-endian header length, that many bytes of JSON, then the tensors back to
// back. Only names, types and places; what the columns mean is not known here. Pure functions.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace prism {

struct ContainerEntry {
  std::string name, dtype;           // dtype in the container's words: "I64", "U8", ...
  std::uint64_t length = 0;          // elements; a column has one dimension
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

struct Container {
  std::map<std::string, std::string> metadata;  // __metadata__
  std::vector<ContainerEntry> entries;          // by begin
  std::uint64_t data_start = 0;                 // bytes from the start of the file
};

// Reads the header of a file's bytes and checks it wholly: sizes, types and shapes known, one-dimensional, each name
// once, data without hole or overlap, up to the last byte, every column aligned to its element. `path` is for messages.
Result<Container> parse_container(std::string_view file, const std::string& path);
// The bytes before the data, padded so that the data start at a multiple of 8.
Result<std::string> container_header(const Container& container);
// Bytes of one element of a container type; 0 for an unknown one.
std::uint64_t container_element_size(std::string_view dtype);

}  // namespace prism
