// What-ifs of communication: the times that transfers take, after ReplayOptions::communications.
#pragma once
#include <vector>

#include "replay/service_times.hpp"
#include "replay/what_if.hpp"

namespace prism::engine {

Result<void> edit_transfers(const Job& job, const std::vector<CommunicationEdit>& edits, ServiceTimes& service);

}  // namespace prism::engine
