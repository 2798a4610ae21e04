#include "data/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <ranges>
#include <unordered_map>
#include <vector>

#include "data/order.hpp"
#include "data/stored_type.hpp"
#include "data/tensor_store.hpp"
#include "graph/container.hpp"

namespace prism {
namespace {

// A mapped file with tensors, its container checked.
struct TensorFile {
  std::shared_ptr<const MappedFile> file;
  std::uint64_t data_start = 0;
  std::unordered_map<std::string, ContainerEntry> entries;

  static Result<TensorFile> open(const std::string& path) {
    TensorFile opened;
    PRISM_ASSIGN_OR_RETURN(opened.file, MappedFile::open(path));
    PRISM_ASSIGN_OR_RETURN(auto container, parse_container(opened.file->bytes(), path));
    opened.data_start = container.data_start;
    for (auto& entry : container.entries) {
      std::string name = entry.name;
      opened.entries.emplace(std::move(name), std::move(entry));
    }
    return opened;
  }

  // The bytes of a tensor that the index expects here.
  Result<std::span<const std::byte>> find(DType dtype, std::uint64_t bytes, ContentHash hash,
                                          const std::string& path) const {
    const auto name = tensor_name(dtype, hash);
    const auto found = entries.find(name);
    if (found == entries.end())
      return Error{ErrorCode::kCorruptFile, fmt::format("{}: tensor '{}' of the index is missing", path, name)};
    const ContainerEntry& entry = found->second;
    if (entry.dtype != stored_type(dtype).name || entry.end - entry.begin != bytes)
      return Error{ErrorCode::kCorruptFile,
                   fmt::format("{}: tensor '{}' is {} of {} bytes; accepted, by the index: {} of {} bytes", path, name,
                               entry.dtype, entry.end - entry.begin, stored_type(dtype).name, bytes)};
    return std::as_bytes(std::span(file->bytes().substr(data_start + entry.begin, bytes)));
  }
};

}  // namespace

struct RecordedData::Shards {
  std::mutex mutex;
  std::map<std::int32_t, TensorFile> open;
};

RecordedData::RecordedData(std::string folder, DataIndex index)
    : folder_(std::move(folder)), index_(std::move(index)), shards_(std::make_unique<Shards>()) {}
RecordedData::~RecordedData() = default;

Result<std::shared_ptr<const RecordedData>> RecordedData::open(const std::string& folder) {
  PRISM_ASSIGN_OR_RETURN(auto index, open_index(index_path(folder)));
  return std::shared_ptr<const RecordedData>(new RecordedData(folder, std::move(index)));
}

std::optional<std::uint32_t> RecordedData::find_group(std::string_view name) const {
  const auto& groups = index_.header.groups;
  const auto found = std::ranges::lower_bound(groups, name);
  if (found == groups.end() || *found != name) return std::nullopt;
  return static_cast<std::uint32_t>(found - groups.begin());
}

std::span<const std::int32_t> RecordedData::members(std::uint32_t group) const {
  const auto& offsets = index_.columns.group_member_offset;
  return index_.columns.group_member.subspan(offsets[group], offsets[group + 1] - offsets[group]);
}

std::optional<std::size_t> RecordedData::find_collective(std::uint32_t group, std::int64_t seq) const {
  return find_message(group, -1, -1, 0, seq);
}

std::optional<std::size_t> RecordedData::find_message(std::uint32_t group, std::int32_t source,
                                                      std::int32_t destination, std::int32_t tag,
                                                      std::int64_t seq) const {
  const auto& c = index_.columns;
  const auto wanted = comm_key(group, source, destination, tag, seq);
  const auto all = std::views::iota(std::size_t{0}, c.comm_seq.size());
  const auto found = std::ranges::lower_bound(all, wanted, {}, [&](std::size_t i) { return comm_key(c, i); });
  if (found == all.end() || comm_key(c, *found) != wanted) return std::nullopt;
  return *found;
}

Result<RecordedData::Tensor> RecordedData::tensor(std::uint32_t number) const {
  const auto& c = index_.columns;
  const auto dtype = static_cast<DType>(c.tensor_dtype[number]);
  const ContentHash hash{c.tensor_low[number], c.tensor_high[number]};
  const std::int32_t shard = c.tensor_shard[number];
  Tensor tensor{dtype, {}, {}};
  if (shard == kOwnFile) {  // not kept open: a process may map some 65,000 files
    const auto path = own_file_path(folder_, dtype, hash);
    PRISM_ASSIGN_OR_RETURN(const auto file, TensorFile::open(path));
    PRISM_ASSIGN_OR_RETURN(tensor.bytes, file.find(dtype, c.tensor_bytes[number], hash, path));
    tensor.file = file.file;
    return tensor;
  }
  const auto path = shard_path(folder_, static_cast<std::uint32_t>(shard));
  const std::lock_guard lock(shards_->mutex);
  auto place = shards_->open.find(shard);
  if (place == shards_->open.end()) {
    PRISM_ASSIGN_OR_RETURN(auto file, TensorFile::open(path));
    place = shards_->open.emplace(shard, std::move(file)).first;
  }
  PRISM_ASSIGN_OR_RETURN(tensor.bytes, place->second.find(dtype, c.tensor_bytes[number], hash, path));
  tensor.file = place->second.file;
  return tensor;
}

Result<void> RecordedData::verify() const {
  for (std::uint32_t i = 0; i < index_.columns.tensor_bytes.size(); ++i) PRISM_RETURN_IF_ERROR(verify(i));
  return {};
}

Result<void> RecordedData::verify(std::uint32_t number) const {
  const auto& c = index_.columns;
  PRISM_ASSIGN_OR_RETURN(const auto read, tensor(number));
  const ContentHash found = content_hash(read.bytes), expected{c.tensor_low[number], c.tensor_high[number]};
  if (found == expected) return {};
  return Error{ErrorCode::kCorruptFile, fmt::format("{}: the content of tensor '{}' has the hash {}", folder_,
                                                    tensor_name(read.dtype, expected), to_hex(found))};
}

}  // namespace prism
