// What DataWriter recorded, mapped: tensors of communications as the emulation engine prefetches them. Immutable; any
// thread. The index is checked when it is opened, a file with tensors before its first use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.hpp"
#include "core/vocabulary.hpp"
#include "data/hash.hpp"
#include "data/index.hpp"

namespace prism {

class RecordedData {
 public:
  // kIo where a file cannot be read, kCorruptFile where it breaks the format.
  static Result<std::shared_ptr<const RecordedData>> open(const std::string& folder);
  ~RecordedData();

  const DataHeader& header() const { return index_.header; }
  const DataColumns<DataView>& columns() const { return index_.columns; }
  std::optional<std::uint32_t> find_group(std::string_view name) const;
  std::span<const std::int32_t> members(std::uint32_t group) const;
  // Index of the communication; nullopt: nothing is kept of it.
  std::optional<std::size_t> find_collective(std::uint32_t group, std::int64_t seq) const;
  std::optional<std::size_t> find_message(std::uint32_t group, std::int32_t source, std::int32_t destination,
                                          std::int32_t tag, std::int64_t seq) const;

  struct Tensor {
    DType dtype = DType::kNone;
    std::span<const std::byte> bytes;
    std::shared_ptr<const MappedFile> file;  // keeps `bytes` alive
  };
  // `tensor` below the number of tensors.
  Result<Tensor> tensor(std::uint32_t tensor) const;
  // Reads everything once: every tensor has the content that its hash says.
  Result<void> verify() const;
  Result<void> verify(std::uint32_t tensor) const;

 private:
  struct Shards;
  RecordedData(std::string folder, DataIndex index);
  const std::string folder_;
  const DataIndex index_;
  const std::unique_ptr<Shards> shards_;
};

}  // namespace prism
