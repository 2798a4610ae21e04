// Which communication of a trace it is that a real rank issues.
//
// Beyond the record its last period is repeated (loop.hpp). That the job goes on is known from the first call that the
// record does not have and the period would have next; that it ends, from the first one of those behind the period.
//
// One thread, but for version() and beyond().
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "replay/emulation.hpp"
#include "replay/job.hpp"
#include "replay/loop.hpp"

namespace prism {

class EmulationCalls {
 public:
  using Call = Emulation::Call;
  // `job` outlives this.
  EmulationCalls(const engine::Job& job, const Emulation::Options& options);

  // See Emulation. Numbers beyond the record are those of engine::Loop.
  Result<std::uint32_t> find(int rank, const Call& call);
  bool is_repeated(int rank, std::uint32_t number) const;
  std::string describe(int rank, std::uint32_t number) const;
  std::size_t left_of(int rank) const;
  std::string first_left(int rank) const;
  const std::vector<std::string>& differences() const { return differences_; }

  // What is known of the job's length.
  struct Beyond {
    std::shared_ptr<const engine::Loop> loop;  // nullptr: the record is all there is
    int iterations = 0;                        // 0: the loop has no end
    // What was taken for something behind the last iteration before it was known that the job goes on: by rank and
    // number in the record, its number in the loop.
    std::map<std::pair<int, std::uint32_t>, std::uint32_t> renamed;
  };
  Beyond beyond() const;
  unsigned version() const { return version_.load(std::memory_order_acquire); }  // of beyond()

 private:
  // Group slot; 0 collective, 1 send, 2 receive; peer; tag.
  using Stream = std::tuple<std::uint32_t, int, std::int32_t, std::int32_t>;
  using Comms = std::vector<std::uint32_t>;
  struct OfRank {
    std::map<std::string, std::uint32_t, std::less<>> slots;  // of groups, by name
    std::map<Stream, Comms> streams;                          // ascending
    std::vector<std::uint32_t> found;                         // [comms] how often
  };
  struct Place {
    std::uint32_t comm, round;
  };
  const engine::CommPlan& plan(int rank, std::uint32_t comm) const;
  std::optional<Place> in_record(int rank, const Comms& stream, std::int64_t number) const;
  std::optional<Place> in_loop(int rank, const Comms& stream, std::int64_t number) const;
  std::optional<Place> behind(int rank, const Comms& stream, std::int64_t number) const;
  bool is_in_turn(int rank, Place place) const;
  std::uint32_t rounds_of(int rank) const;
  bool ends_like_a_round(int rank) const;
  std::vector<Place> left(int rank) const;
  Result<void> go_on(int rank, const Comms& stream, const Call& call);
  bool rename(int rank, Beyond& beyond);
  Result<std::uint32_t> find_in_loop(int rank, const Comms& stream, const Call& call);
  Result<void> end(int rank, const Call& call);
  bool is_same(int rank, std::uint32_t comm, const Call& call) const;
  bool is_like(int rank, std::uint32_t comm, const Call& call) const;
  Error differs(int rank, const Call& call, const std::string& has) const;
  Result<std::uint32_t> take(int rank, Place place, const Call& call);
  std::string describe(int rank, Place place) const;
  void publish(Beyond beyond);

  const engine::Job& job_;
  const bool warns_;
  std::map<int, OfRank> ranks_;
  std::vector<std::string> differences_;
  std::shared_ptr<const engine::Loop> loop_;  // that the job would go on in, once that has been asked
  std::optional<Error> not_periodic_;
  mutable std::mutex mutex_;  // of beyond_, where others read
  Beyond beyond_;
  std::atomic<unsigned> version_ = 0;
};

}  // namespace prism
