// Tensors by content, each stored once: large ones in files of their own as they come, small ones in a spool that
// becomes the shards in the end, so that what lies where does not depend on who came first. One thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.hpp"
#include "core/vocabulary.hpp"
#include "data/hash.hpp"
#include "data/index.hpp"
#include "data/output_file.hpp"

namespace prism {

// From here on a tensor has a file of its own: a file costs what writing 50 KB does.
inline constexpr std::uint64_t kLargeTensorBytes = 1u << 20;
// Of a shard. Its header is parsed as a whole, and a reader maps it as a whole.
inline constexpr std::uint64_t kMaxShardBytes = 256u << 20, kMaxShardTensors = 1u << 16;

std::string tensor_name(DType dtype, ContentHash hash);  // "float32-<32 hexadecimal digits>"
std::string own_file_path(const std::string& folder, DType dtype, ContentHash hash);

class TensorStore {
 public:
  explicit TensorStore(std::string folder) : folder_(std::move(folder)) {}

  // The tensor's number, the same for equal ones. 2^32 different tensors at most.
  Result<std::uint32_t> add(DType dtype, std::span<const std::byte> bytes, ContentHash hash);
  // Writes the shards and fills the tensor_ columns; returns the tensors' places there by their numbers.
  Result<std::vector<std::uint32_t>> finish(DataColumns<DataOwned>& columns, std::uint32_t& shards);

  std::uint64_t distinct() const { return tensors_.size(); }
  std::uint64_t stored_bytes() const { return stored_bytes_; }

 private:
  struct Tensor {
    DType dtype;
    std::uint64_t bytes;
    ContentHash hash;
    std::uint64_t spooled_at = 0;
    bool operator==(const Tensor& other) const {
      return dtype == other.dtype && bytes == other.bytes && hash == other.hash;
    }
    bool is_large() const { return bytes >= kLargeTensorBytes; }
  };
  struct ByHash {
    std::size_t operator()(const Tensor& tensor) const { return tensor.hash.low; }
  };
  Result<void> write_large(const Tensor& tensor, std::span<const std::byte> bytes) const;
  Result<void> write_shard(std::uint32_t shard, std::span<const std::uint32_t> numbers, std::string_view spool) const;
  std::string spool_path() const { return folder_ + "/spool"; }

  const std::string folder_;
  std::vector<Tensor> tensors_;
  std::unordered_map<Tensor, std::uint32_t, ByHash> numbers_;
  OutputFile spool_;
  bool spooling_ = false;
  std::uint64_t stored_bytes_ = 0;
};

}  // namespace prism
