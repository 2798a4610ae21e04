// What index.prismdata holds: which tensor was put into which communication by whom. Columns in one list, shared by
// memory and file; their meaning is in docs/design/prismdata.md.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "graph/mapped_file.hpp"

namespace prism {

inline constexpr int kDataVersion = 1;
inline constexpr std::int32_t kVirtualPart = -1;  // block_member of what virtual members put in together
inline constexpr std::int32_t kOwnFile = -1;      // tensor_shard of a tensor with a file of its own

// By descending element size, so that each column is aligned.
#define PRISM_DATA_COLUMNS(X)           \
  X(std::uint64_t, comm_block_offset)   \
  X(std::uint64_t, comm_digest_offset)  \
  X(std::uint64_t, group_member_offset) \
  X(std::uint64_t, digest_low)          \
  X(std::uint64_t, digest_high)         \
  X(std::uint64_t, tensor_low)          \
  X(std::uint64_t, tensor_high)         \
  X(std::uint64_t, tensor_bytes)        \
  X(std::int64_t, comm_seq)             \
  X(std::int32_t, comm_root)            \
  X(std::int32_t, comm_source)          \
  X(std::int32_t, comm_destination)     \
  X(std::int32_t, comm_tag)             \
  X(std::int32_t, group_member)         \
  X(std::int32_t, block_member)         \
  X(std::int32_t, digest_member)        \
  X(std::int32_t, tensor_shard)         \
  X(std::uint32_t, comm_group)          \
  X(std::uint32_t, block_index)         \
  X(std::uint32_t, block_tensor)        \
  X(std::uint8_t, comm_op)              \
  X(std::uint8_t, comm_dtype)           \
  X(std::uint8_t, comm_reduce_op)       \
  X(std::uint8_t, tensor_dtype)

template <template <typename> class Array>
struct DataColumns {
#define PRISM_DATA_FIELD(type, name) Array<type> name;
  PRISM_DATA_COLUMNS(PRISM_DATA_FIELD)
#undef PRISM_DATA_FIELD
};
template <typename T>
using DataOwned = std::vector<T>;
template <typename T>
using DataView = std::span<const T>;

// Calls f(name, column) for every column, in file order.
#define PRISM_DATA_VISIT(type, name) f(std::string_view(#name), set.name);
template <template <typename> class Array, typename Function>
void for_each_column(DataColumns<Array>& set, Function&& f) {
  PRISM_DATA_COLUMNS(PRISM_DATA_VISIT)
}
template <template <typename> class Array, typename Function>
void for_each_column(const DataColumns<Array>& set, Function&& f) {
  PRISM_DATA_COLUMNS(PRISM_DATA_VISIT)
}
#undef PRISM_DATA_VISIT

struct DataHeader {
  int world_size = 0;
  std::optional<std::vector<std::int32_t>> for_ranks;  // ascending; absent: every input of every rank is kept
  std::vector<std::string> groups;                     // names as in the trace, ascending
  std::uint32_t shards = 0;
};

struct DataIndex {
  DataHeader header;
  DataColumns<DataView> columns;
  std::shared_ptr<const MappedFile> file;
};

std::string index_path(const std::string& folder);
std::string shard_path(const std::string& folder, std::uint32_t shard);

Result<void> write_index(const DataHeader& header, DataColumns<DataOwned>& columns, const std::string& path);
// Maps the file and checks every value: lengths, offsets, enumerators, orders, ranges.
Result<DataIndex> open_index(const std::string& path);

}  // namespace prism
