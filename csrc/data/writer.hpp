// Records the tensors of a job's communications into a folder: a complete one after finish(). One thread. Whoever calls
// makes the folder, empty, and gives it its name when all is well.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism {

// A collective by (group, seq), a message by (group, source, destination, tag, seq); seq as in the trace.
struct RecordedComm {
  std::string group;
  std::vector<std::int32_t> members;  // global ranks by group rank
  Op op = Op::kNone;                  // kSend for a message
  DType dtype = DType::kNone;
  ReduceOp reduce_op = ReduceOp::kNone;
  std::int32_t root = -1;                      // group rank
  std::int32_t source = -1, destination = -1;  // global ranks
  std::int32_t tag = 0;
  std::int64_t seq = 0;
};

struct RecordedBlock {
  std::int32_t member = 0;  // group rank, or kVirtualPart
  std::uint32_t index = 0;  // among the member's inputs, as of csrc/backend/protocol/operation.hpp
  DType dtype = DType::kNone;
  std::span<const std::byte> bytes;
  bool keep = false;  // is stored
  bool sent = false;  // enters the digest of what its member put in; then all blocks of that member do
};

class DataWriter {
 public:
  struct Options {
    std::string folder;
    int world_size = 0;
    std::optional<std::vector<std::int32_t>> for_ranks;
    std::uint64_t most_bytes = 0;  // of different tensors; more is an error. 0: no limit
  };
  struct Statistics {
    std::uint64_t tensors = 0, bytes = 0;          // kept
    std::uint64_t distinct = 0, stored_bytes = 0;  // of those, different ones
    double seconds = 0;                            // spent here, hashing and writing
  };
  explicit DataWriter(Options options);
  ~DataWriter();
  // `blocks` by (member, index), ascending. A full disk is an error that says how much has been written.
  Result<void> add(const RecordedComm& comm, std::span<const RecordedBlock> blocks);
  Result<void> finish();
  Statistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
