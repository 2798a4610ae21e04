// Which messages are two ends of one, where the order in which they were posted is known.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/job.hpp"

namespace prism::engine {

inline constexpr std::int64_t kNotPosted = INT64_MIN;

// [entries] The other end of each message; kNone for collectives, and for messages that meet nobody.
// `posted_at` [entries]: moments, or numbers in their order; of one moment the lower entry is first.
std::vector<std::uint32_t> message_partners(const Job& job, const std::vector<std::int64_t>& posted_at);

// [entries] As the record has it; in program order where it has no times, or clocks cannot be compared.
std::vector<std::int64_t> recorded_postings(const Job& job);

}  // namespace prism::engine
