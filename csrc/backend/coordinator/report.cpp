// Who waits for what: the text that a user reads when a job cannot go on.
#include <fmt/format.h>

#include <map>

#include "backend/coordinator/loop.hpp"
#include "backend/coordinator/process_state.hpp"

namespace prism {

bool Coordinator::Impl::quiet() const {
  if (emulator_) return false;  // it says itself when nothing can go on
  return joined_ == options_.world_size && finished_ < joined_ && impatient_ == 0 && reducing_ == 0 &&
         postponed_.empty() && scheduler_.running() == 0 && scheduler_.waiting() == 0 && scheduler_.polling() == 0;
}

// One line per operation, with all ranks that wait in it: 1,024 ranks that wait for one are two lines, not a thousand.
std::string Coordinator::Impl::waiting_report() const {
  struct Line {
    std::vector<int> waiting;
    std::string what;
    std::vector<int> missing;
  };
  std::map<std::pair<int, std::string>, Line> lines;  // by first waiting rank
  std::map<const Pending*, Line*> seen;
  std::vector<int> idle, finished;
  std::vector<std::string> waits_in(ranks_.size());
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const Rank& r = at(rank);
    if (r.finished) finished.push_back(rank);
    if (r.finished || !r.joined) continue;
    if (r.outstanding.empty()) idle.push_back(rank);
    for (const auto& [work, pending] : r.outstanding) {
      if (!r.awaited.empty() && r.awaited.count(work) == 0) continue;
      Line*& line = seen[pending.get()];
      if (line == nullptr) {
        line = &lines[{rank, fmt::format("{:020}", work)}];
        *line = {{}, pending->describe(), pending->missing()};
      }
      line->waiting.push_back(rank);
      if (waits_in[static_cast<std::size_t>(rank)].empty()) waits_in[static_cast<std::size_t>(rank)] = line->what;
    }
  }
  const auto whereabouts = [&](int rank) {
    if (at(rank).finished) return std::string("has finished");
    if (!at(rank).joined) return std::string("has not connected");
    const auto& text = waits_in[static_cast<std::size_t>(rank)];
    if (!text.empty()) return "waits in " + text;
    return std::string(scheduler_.state(rank) == SlotState::kRunning ? "computes" : "sleeps outside of any operation");
  };
  std::string report;
  constexpr std::size_t kLines = 64, kMissingShown = 8;
  std::size_t shown = 0;
  for (const auto& entry : lines) {
    const Line& line = entry.second;
    if (++shown > kLines) {
      report += fmt::format("  ... and {} more operations\n", lines.size() - kLines);
      break;
    }
    report +=
        fmt::format("  {} {} in {}", line.waiting.size() == 1 ? "rank" : "ranks", ranges_text(line.waiting), line.what);
    std::string separator = ": missing ";
    for (std::size_t i = 0; i < line.missing.size() && i < kMissingShown; ++i) {
      report += fmt::format("{}rank {} ({})", separator, line.missing[i], whereabouts(line.missing[i]));
      separator = ", ";
    }
    if (line.missing.size() > kMissingShown)
      report += fmt::format(" and ranks {}", ranges_text({line.missing.begin() + kMissingShown, line.missing.end()}));
    report += "\n";
  }
  const auto ranks = [&](const std::vector<int>& which, std::string_view one, std::string_view several) {
    if (which.size() == 1) report += fmt::format("  rank {} {}\n", which[0], one);
    if (which.size() > 1) report += fmt::format("  ranks {} {}\n", ranges_text(which), several);
  };
  ranks(idle, "sleeps outside of any operation", "sleep outside of any operation");
  ranks(finished, "has finished", "have finished");
  return report;
}

Error Coordinator::Impl::deadlock_report() const {
  return {ErrorCode::kDeadlock, "deadlock: no rank can make progress\n" + waiting_report()};
}

}  // namespace prism
