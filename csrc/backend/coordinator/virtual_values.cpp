#include "backend/coordinator/virtual_values.hpp"

#include <fmt/format.h>

#include "backend/coordinator/process_state.hpp"
#include "data/hash.hpp"

namespace prism {
namespace {

int global(const Exchange& exchange, std::int32_t member) {
  return exchange.group->members[static_cast<std::size_t>(member)];
}

}  // namespace

Result<VirtualValues> VirtualValues::open(const std::string& folder, const std::vector<int>& real) {
  VirtualValues values;
  PRISM_ASSIGN_OR_RETURN(values.data_, RecordedData::open(folder));
  const auto& kept = values.data_->header().for_ranks;
  if (kept && std::vector<int>(kept->begin(), kept->end()) != real)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("'{}' has what ranks {} receive; accepted: that of ranks {}, or of all ranks", folder,
                             ranges_text({kept->begin(), kept->end()}), ranges_text(real))};
  return values;
}

VirtualValues::Key VirtualValues::key(const Exchange& message) {
  const Arrival& receiver = message.arrivals[1];
  return {message.group->key, global(message, receiver.operation.peer), receiver.rank, receiver.operation.tag};
}

std::optional<RecordedData::Tensor> VirtualValues::find(const Exchange& exchange, std::int32_t member,
                                                        std::uint32_t index, DType dtype, std::uint64_t bytes) const {
  const auto group = data_ ? data_->find_group(exchange.group->key) : std::nullopt;
  if (!group) return std::nullopt;
  std::optional<std::size_t> comm;
  if (exchange.collective) {
    comm = data_->find_collective(*group, static_cast<std::int64_t>(exchange.operation().number));
  } else {
    const auto message = key(exchange);
    const auto taken = messages_.find(message);
    const auto& [name, source, destination, tag] = message;
    comm = data_->find_message(*group, source, destination, tag, taken == messages_.end() ? 0 : taken->second);
  }
  if (!comm) return std::nullopt;
  const auto& columns = data_->columns();
  for (auto block = columns.comm_block_offset[*comm]; block < columns.comm_block_offset[*comm + 1]; ++block) {
    if (columns.block_member[block] != member || columns.block_index[block] != index) continue;
    auto tensor = data_->tensor(columns.block_tensor[block]);
    if (!tensor || tensor->bytes.size() != bytes || (dtype != DType::kNone && tensor->dtype != dtype))
      return std::nullopt;
    return std::move(*tensor);
  }
  return std::nullopt;
}

std::optional<bool> VirtualValues::is_same(const Exchange& exchange, const Arrival& arrival,
                                           const SharedMemory& memory) const {
  const Operation& o = arrival.operation;
  const auto group = data_ ? data_->find_group(exchange.group->key) : std::nullopt;
  if (!group || o.inputs.empty()) return std::nullopt;
  const auto number = static_cast<std::int64_t>(o.number);
  const auto comm = exchange.collective
                        ? data_->find_collective(*group, number)
                        : data_->find_message(*group, arrival.rank, global(exchange, o.peer), o.tag, number);
  if (!comm) return std::nullopt;
  InputsDigest digest;
  for (const Region input : o.inputs) digest.add(input.bytes, content_hash({memory.at(input.offset), input.bytes}));
  const auto& columns = data_->columns();
  for (auto i = columns.comm_digest_offset[*comm]; i < columns.comm_digest_offset[*comm + 1]; ++i)
    if (columns.digest_member[i] == arrival.member)
      return digest.value() == ContentHash{columns.digest_low[i], columns.digest_high[i]};
  return std::nullopt;
}

}  // namespace prism
