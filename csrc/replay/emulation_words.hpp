// Communications in the words of errors: "all_reduce 3 of group 'tp0' (float32, sum, 4096 bytes in, 4096 out)".
#pragma once
#include <string>

#include "replay/emulation.hpp"
#include "replay/job.hpp"

namespace prism {

std::string in_words(const Emulation::Call& call);
// Of a rank's communication in the record, which has this number.
std::string in_words(const engine::Job& job, int rank, std::uint32_t comm, std::int64_t number);

}  // namespace prism
