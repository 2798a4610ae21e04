// The arithmetic of a pruned collective, without torch: what sandbox members and assistants do with chunks of any
// element type. Results are rounded as docs/design/prismdata.md says: 16- and 8-bit floats accumulate in float32,
// float32 in float64 (min and max: in itself), complex in complex128, all others in their own type; integers wrap
// around. bool sums by or, multiplies by and. PREMUL_SUM is the sum of inputs that are scaled already.
#pragma once
#include <cstddef>
#include <span>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism {

// The type of a virtual part; kNone where the reduction is not defined. As the executor of captures has it.
DType accumulation_type(DType dtype, ReduceOp op);

// Leaves every element that it is reduced with as it is, to the bit (of a product of complex numbers: but for the signs
// of zeros, and infinities). `out`: whole elements.
Result<void> fill_identity(DType dtype, ReduceOp op, std::span<std::byte> out);

// out = reduce(virtual part, sources in order), accumulated in accumulation_type() and rounded once, `count` elements
// of each. `virtual_part` may be null, but not without a source. `out` may be one of the sources.
Result<void> reduce(DType dtype, ReduceOp op, std::size_t count, const std::byte* virtual_part,
                    std::span<const std::byte* const> sources, std::byte* out);

// The end of an AVG: sums become averages over `members`, of integers towards zero.
Result<void> divide(DType dtype, int members, std::span<std::byte> sums);

}  // namespace prism
