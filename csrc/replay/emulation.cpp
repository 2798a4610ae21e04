#include "replay/emulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "replay/checks.hpp"
#include "replay/emulation_calls.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"

namespace prism {
namespace {

// What a real rank waits for comes at most so many records later, and a moment.
constexpr std::int64_t kRecords = 10, kMomentNs = 1'000'000'000;

std::int64_t length_ns(const engine::Job& job) {
  std::int64_t longest = 0;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const auto timing = job.timings[rank];
    if (job.ranks[rank].cls < 0 || timing.start_ns.empty()) continue;
    std::int64_t end = INT64_MIN;
    for (std::uint32_t node = 0; node < timing.start_ns.size(); ++node)
      end = std::max(end, engine::end_ns(timing, node));
    longest = std::max(longest, end - *std::min_element(timing.start_ns.begin(), timing.start_ns.end()));
  }
  return longest;
}

}  // namespace

struct Emulation::Parts {
  using Key = std::pair<std::int32_t, std::uint32_t>;  // rank, number
  engine::Job job;
  engine::Durations durations;
  engine::ServiceTimes service;
  std::unique_ptr<engine::Carrier> carrier;
  std::unique_ptr<engine::Engine> engine;
  unsigned version = 0;  // of `beyond`
  EmulationCalls::Beyond beyond;
  std::map<Key, std::uint32_t> renamed;   // that are yet to arrive: as the engine numbers them
  std::map<Key, std::uint32_t> found_as;  // the other way round, those that are yet to be released
  std::map<Key, std::int64_t> before;     // when an engine before this one released what this one is yet to release
  std::vector<Released> missed;           // that it should have released
  explicit Parts(engine::Job prepared) : job(std::move(prepared)), durations(job) {}
  bool endless() const { return beyond.loop && beyond.iterations == 0; }
};

Emulation::Emulation(ExecutionGraph graph, Options options) : graph_(std::move(graph)), options_(std::move(options)) {}
Emulation::~Emulation() = default;

Result<std::unique_ptr<Emulation>> Emulation::make(ExecutionGraph graph, const Options& options) {
  std::unique_ptr<Emulation> made(new Emulation(std::move(graph), options));
  PRISM_RETURN_IF_ERROR(made->prepare());
  return made;
}

Result<void> Emulation::prepare() {
  if (options_.sandbox.empty()) return Error{ErrorCode::kInvalidInput, "no rank is to be real; accepted: one or more"};
  for (const int rank : options_.sandbox)
    if (rank < 0 || rank >= graph_.world_size() || graph_.class_of(rank) < 0)
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} was not recorded in the trace", rank)};
  PRISM_RETURN_IF_ERROR(engine::check_times(graph_));
  PRISM_ASSIGN_OR_RETURN(auto job, engine::prepare(graph_));
  parts_ = std::make_unique<Parts>(std::move(job));
  Parts& parts = *parts_;
  if (graph_.timed() || !options_.network) parts.service = engine::service_times(parts.job, options_.links);
  PRISM_RETURN_IF_ERROR(engine::check_extent(parts.job, parts.durations, parts.service));
  engine::forget_entries(parts.job);
  patience_ns_ = kRecords * length_ns(parts.job) + kMomentNs;
  calls_ = std::make_unique<EmulationCalls>(parts.job, options_);
  return start();
}

Result<void> Emulation::start() {
  Parts& parts = *parts_;
  if (options_.network) {
    PRISM_ASSIGN_OR_RETURN(parts.carrier, engine::OnNetwork::make(parts.job, *options_.network));
  } else {
    parts.carrier = std::make_unique<engine::FixedTimes>(parts.service);
  }
  parts.engine =
      std::make_unique<engine::Engine>(parts.job, parts.durations, parts.service, *parts.carrier,
                                       engine::Engine::Options{.loop = parts.beyond.loop.get(), .timelines = false});
  if (parts.beyond.iterations > 0) PRISM_RETURN_IF_ERROR(parts.engine->end_after(parts.beyond.iterations));
  std::vector<int> all;
  for (int rank = 0; rank < graph_.world_size(); ++rank)
    if (graph_.class_of(rank) >= 0) all.push_back(rank);
  parts.engine->begin(all, options_.sandbox);
  return {};
}

// Where more is known of the job's length than this engine was told.
Result<void> Emulation::start_again() {
  Parts& parts = *parts_;
  const auto version = calls_->version();
  if (version == parts.version) return {};
  parts.version = version;
  const bool first = !parts.beyond.loop;
  parts.beyond = calls_->beyond();
  if (first) rename_known();
  PRISM_RETURN_IF_ERROR(start());
  return do_again();
}

// It is known now that they are repetitions.
void Emulation::rename_known() {
  Parts& parts = *parts_;
  const auto& names = parts.beyond.renamed;
  parts.renamed = names;
  for (const auto& [key, number] : names) parts.found_as[{key.first, number}] = key.second;
  const auto renamed = [&](Issue one) {
    if (const auto known = names.find({one.rank, one.comm}); known != names.end()) one.comm = known->second;
    return one;
  };
  const auto arrives = [&](const Issue& one) {
    parts.renamed.erase({one.rank, one.comm});
    return renamed(one);
  };
  std::transform(issued_.begin(), issued_.end(), issued_.begin(), arrives);
  std::set<Issue> to_come;
  for (const auto& one : to_come_) to_come.insert(arrives(one));
  to_come_ = std::move(to_come);
  for (auto& one : released_) {
    one = renamed(one);
    parts.found_as.erase({one.rank, one.comm});
  }
}

// All that has been so far, by an engine that knows more. What was released before stays as it was.
Result<void> Emulation::do_again() {
  Parts& parts = *parts_;
  parts.before.clear();
  for (const auto& one : released_) parts.before[{one.rank, one.comm}] = one.at_ns;
  std::vector<engine::Engine::Released> now;
  const auto go_to = [&](std::int64_t until_ns) -> Result<void> {
    do {
      now.clear();
      PRISM_RETURN_IF_ERROR(parts.engine->advance(until_ns, now));
      for (const auto& [rank, comm, at] : now)
        if (const Issue one{at, rank, comm}; is_new(one)) {
          late_ns_ = std::max(late_ns_, now_ns_ - at);
          parts.missed.push_back(as_found(one));
        }
    } while (!now.empty());
    return {};
  };
  for (const auto& [at, rank, comm] : issued_) {
    PRISM_RETURN_IF_ERROR(go_to(at));
    PRISM_RETURN_IF_ERROR(parts.engine->arrived(rank, comm, at));
  }
  PRISM_RETURN_IF_ERROR(go_to(now_ns_));
  if (!parts.endless()) issued_ = {}, released_ = {};
  return {};
}

bool Emulation::is_new(const Issue& ended) {
  const auto before = parts_->before.find({ended.rank, ended.comm});
  if (before == parts_->before.end()) return true;
  late_ns_ = std::max(late_ns_, std::abs(before->second - ended.at_ns));
  parts_->before.erase(before);
  return false;
}

Emulation::Released Emulation::as_found(const Issue& ended) {
  Parts& parts = *parts_;
  const bool ends = parts.beyond.iterations > 0;
  if (!ends) released_.push_back(ended);
  const auto known = parts.found_as.find({ended.rank, ended.comm});
  if (known == parts.found_as.end()) return {ended.rank, ended.comm, ended.at_ns};
  const auto number = known->second;
  parts.found_as.erase(known);
  return {ended.rank, number, ended.at_ns};
}

Result<void> Emulation::arrived(int rank, std::uint32_t comm, std::int64_t at_ns) {
  PRISM_RETURN_IF_ERROR(start_again());
  if (const auto known = parts_->renamed.find({rank, comm}); known != parts_->renamed.end()) {
    comm = known->second;
    parts_->renamed.erase(known);
  }
  late_ns_ = std::max(late_ns_, now_ns_ - at_ns);
  to_come_.insert({std::max(at_ns, now_ns_), rank, comm});
  patient_until_ns_ = std::max(patient_until_ns_, std::max(at_ns, now_ns_) + patience_ns_);
  return {};
}

Result<void> Emulation::advance(std::int64_t until_ns, std::vector<Released>& released) {
  PRISM_RETURN_IF_ERROR(start_again());
  Parts& parts = *parts_;
  if (!parts.missed.empty()) {
    released.insert(released.end(), parts.missed.begin(), parts.missed.end());
    parts.missed.clear();
    return {};
  }
  if (parts.endless()) until_ns = std::min(until_ns, std::max(now_ns_, patient_until_ns_));
  std::vector<engine::Engine::Released> now;
  while (until_ns > now_ns_ || (!to_come_.empty() && to_come_.begin()->at_ns < until_ns)) {
    const bool issue = !to_come_.empty() && to_come_.begin()->at_ns < until_ns;
    const auto step_ns = issue ? to_come_.begin()->at_ns : until_ns;
    now.clear();
    PRISM_RETURN_IF_ERROR(parts.engine->advance(step_ns, now));
    const auto count = released.size();
    for (const auto& [rank, comm, at] : now)
      if (const Issue one{at, rank, comm}; is_new(one)) released.push_back(as_found(one));
    if (!now.empty()) now_ns_ = std::max(now_ns_, now.back().at_ns);
    // What ends at one moment has ended; others may still be issued in it.
    if (released.size() > count) {
      patient_until_ns_ = std::max(patient_until_ns_, now_ns_ + patience_ns_);
      return {};
    }
    if (!now.empty()) continue;
    if (step_ns == INT64_MAX) return {};
    now_ns_ = step_ns;
    if (!issue) return {};
    const auto one = *to_come_.begin();
    to_come_.erase(to_come_.begin());
    if (parts.beyond.iterations == 0) issued_.push_back(one);
    PRISM_RETURN_IF_ERROR(parts.engine->arrived(one.rank, one.comm, one.at_ns));
  }
  return {};
}

Result<std::uint32_t> Emulation::find(int rank, const Call& call) { return calls_->find(rank, call); }
bool Emulation::is_recorded(int rank, std::uint32_t comm) const { return !calls_->is_repeated(rank, comm); }
std::string Emulation::describe(int rank, std::uint32_t comm) const { return calls_->describe(rank, comm); }
std::size_t Emulation::left_of(int rank) const { return calls_->left_of(rank); }
std::string Emulation::first_left(int rank) const { return calls_->first_left(rank); }
const std::vector<std::string>& Emulation::differences() const { return calls_->differences(); }

Emulation::Groups Emulation::groups() const {
  Groups groups{.total = graph_.group_count()};
  for (std::uint32_t group = 0; group < groups.total; ++group) {
    const auto members = graph_.group_members(group);
    const auto real = std::count_if(members.begin(), members.end(), [&](std::int32_t member) {
      return std::binary_search(options_.sandbox.begin(), options_.sandbox.end(), member);
    });
    groups.with_sandbox += real > 0 ? 1 : 0;
    groups.mixed += real > 0 && static_cast<std::size_t>(real) < members.size() ? 1 : 0;
  }
  return groups;
}

Error Emulation::explain_deadlock() const {
  const auto finished = parts_->engine->finished();
  return finished ? Error{ErrorCode::kDeadlock, "the job cannot go on"} : finished.error();
}

}  // namespace prism
