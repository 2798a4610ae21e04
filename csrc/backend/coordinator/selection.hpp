// Which tensors of a complete operation are recorded. Without chosen ranks: all that members put in. With them (the
// sandbox of a later emulation): what they receive from all others, and what they send themselves as a digest. No state
// but the choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/coordinator/exchange.hpp"

namespace prism {

class Selection {
 public:
  // `for_ranks`: absent for all ranks; else ranks of 0 to world_size - 1.
  Selection(int world_size, const std::optional<std::vector<std::int32_t>>& for_ranks);

  struct Input {
    std::size_t arrival = 0;
    std::uint32_t index = 0;  // among the arrival's inputs
    bool keep = false;        // else it only enters the digest of what its member sends
  };
  // By (arrival, index). Empty where nothing of the operation is recorded.
  std::vector<Input> inputs(const Exchange& exchange) const;

  // Of a reduction: the results (by index, as of rules::result_bytes) of which the virtual part is kept.
  std::vector<std::uint32_t> parts(const Exchange& exchange) const;
  // By group rank: 1 where the member is virtual.
  std::vector<std::uint8_t> virtual_members(const Exchange& exchange) const;

 private:
  bool in_sandbox(int rank) const { return sandbox_[static_cast<std::size_t>(rank)]; }
  bool is_mixed(const Exchange& exchange) const;
  bool reaches_sandbox(const Exchange& exchange, std::size_t index) const;

  const bool everything_;
  std::vector<bool> sandbox_;  // by global rank
};

}  // namespace prism
