#include "data/tensor_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "data/order.hpp"
#include "data/stored_type.hpp"
#include "graph/container.hpp"
#include "graph/mapped_file.hpp"

namespace prism {
namespace {

ContainerEntry entry_of(DType dtype, ContentHash hash, std::uint64_t bytes, std::uint64_t begin) {
  const auto stored = stored_type(dtype);
  const std::uint64_t elements = bytes / element_size(dtype) * stored.parts_per_element;
  return {tensor_name(dtype, hash), stored.name, elements, begin, begin + bytes};
}

}  // namespace

std::string tensor_name(DType dtype, ContentHash hash) { return fmt::format("{}-{}", name(dtype), to_hex(hash)); }

std::string own_file_path(const std::string& folder, DType dtype, ContentHash hash) {
  return fmt::format("{}/{}.prismdata", folder, tensor_name(dtype, hash));
}

Result<std::uint32_t> TensorStore::add(DType dtype, std::span<const std::byte> bytes, ContentHash hash) {
  Tensor tensor{dtype, bytes.size(), hash};
  if (const auto known = numbers_.find(tensor); known != numbers_.end()) return known->second;
  if (stored_type(dtype).name == nullptr || bytes.size() % element_size(dtype) != 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("{} bytes of {} cannot be recorded", bytes.size(), name(dtype))};
  if (tensors_.size() >= std::numeric_limits<std::uint32_t>::max())
    return Error{ErrorCode::kInvalidInput, "more than 2^32 different tensors are to be recorded"};
  if (tensor.is_large()) {
    PRISM_RETURN_IF_ERROR(write_large(tensor, bytes));
  } else {
    if (!spooling_) PRISM_RETURN_IF_ERROR(spool_.create(spool_path()));
    spooling_ = true;
    tensor.spooled_at = spool_.bytes();
    PRISM_RETURN_IF_ERROR(spool_.write(bytes));
  }
  stored_bytes_ += bytes.size();
  const auto number = static_cast<std::uint32_t>(tensors_.size());
  tensors_.push_back(tensor);
  numbers_.emplace(tensor, number);
  return number;
}

Result<void> TensorStore::write_large(const Tensor& tensor, std::span<const std::byte> bytes) const {
  Container container;
  container.entries.push_back(entry_of(tensor.dtype, tensor.hash, tensor.bytes, 0));
  PRISM_ASSIGN_OR_RETURN(const auto header, container_header(container));
  OutputFile file;
  PRISM_RETURN_IF_ERROR(file.create(own_file_path(folder_, tensor.dtype, tensor.hash)));
  PRISM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  PRISM_RETURN_IF_ERROR(file.write(bytes));
  return file.close();
}

Result<void> TensorStore::write_shard(std::uint32_t shard, std::span<const std::uint32_t> numbers,
                                      std::string_view spool) const {
  Container container;
  std::uint64_t end = 0;
  for (const auto number : numbers) {
    const Tensor& tensor = tensors_[number];
    end = container.entries.emplace_back(entry_of(tensor.dtype, tensor.hash, tensor.bytes, end)).end;
  }
  PRISM_ASSIGN_OR_RETURN(const auto header, container_header(container));
  OutputFile file;
  PRISM_RETURN_IF_ERROR(file.create(shard_path(folder_, shard)));
  PRISM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  for (const auto number : numbers) {
    const Tensor& tensor = tensors_[number];
    PRISM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(spool.substr(tensor.spooled_at, tensor.bytes)))));
  }
  return file.close();
}

Result<std::vector<std::uint32_t>> TensorStore::finish(DataColumns<DataOwned>& columns, std::uint32_t& shards) {
  std::vector<std::uint32_t> order(tensors_.size()), places(tensors_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](std::uint32_t number) {
    const Tensor& tensor = tensors_[number];
    return tensor_key(tensor.dtype, tensor.bytes, tensor.hash);
  });
  std::shared_ptr<const MappedFile> spool;
  if (spooling_) {
    PRISM_RETURN_IF_ERROR(spool_.close(/*to_disk=*/false));
    PRISM_ASSIGN_OR_RETURN(spool, MappedFile::open(spool_path()));
    unlink(spool_path().c_str());
  }
  shards = 0;
  std::vector<std::uint32_t> shard;
  std::uint64_t shard_bytes = 0;
  const auto close_shard = [&]() -> Result<void> {
    if (shard.empty()) return {};
    PRISM_RETURN_IF_ERROR(write_shard(shards, shard, spool->bytes()));
    ++shards;
    shard.clear();
    shard_bytes = 0;
    return {};
  };
  for (std::size_t place = 0; place < order.size(); ++place) {
    const Tensor& tensor = tensors_[order[place]];
    places[order[place]] = static_cast<std::uint32_t>(place);
    if (!tensor.is_large()) {
      if (shard.size() == kMaxShardTensors || shard_bytes + tensor.bytes > kMaxShardBytes)
        PRISM_RETURN_IF_ERROR(close_shard());
      shard.push_back(order[place]);
      shard_bytes += tensor.bytes;
    }
    columns.tensor_low.push_back(tensor.hash.low);
    columns.tensor_high.push_back(tensor.hash.high);
    columns.tensor_bytes.push_back(tensor.bytes);
    columns.tensor_dtype.push_back(static_cast<std::uint8_t>(tensor.dtype));
    columns.tensor_shard.push_back(tensor.is_large() ? kOwnFile : static_cast<std::int32_t>(shards));
  }
  PRISM_RETURN_IF_ERROR(close_shard());
  for (std::size_t i = 0; i < order.size(); ++i)
    if (columns.tensor_shard[i] == kOwnFile)
      PRISM_RETURN_IF_ERROR(synchronize(own_file_path(folder_, tensors_[order[i]].dtype, tensors_[order[i]].hash)));
  for (std::uint32_t i = 0; i < shards; ++i) PRISM_RETURN_IF_ERROR(synchronize(shard_path(folder_, i)));
  return places;
}

}  // namespace prism
