// A job of N ranks without torch: a coordinator on a thread, one RankClient per rank, each rank's program a function.
#pragma once
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/client/rank_client.hpp"
#include "backend/coordinator/coordinator.hpp"
#include "backend/relay/relay.hpp"

namespace prism::test {

// Plain loops; int64 and float32 (accumulated in double).
class PlainExecutor : public Executor {
 public:
  Result<void> reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) override;
  DType accumulation_type(DType dtype, ReduceOp) const override {
    return dtype == DType::kFloat32 ? DType::kFloat64 : dtype;
  }
};

// One rank, as a program sees it.
class Rank {
 public:
  Rank(std::unique_ptr<RankClient> client, int rank, int world);
  ~Rank() { delete client_.get(), client_.release(); }  // callbacks use answers_ and client_ until it is gone
  RankClient& client() { return *client_; }
  int rank() const { return rank_; }
  GroupHandle world_group();
  GroupHandle group(const std::string& key, std::vector<std::int32_t> members) {
    return client_->join_group(key, members).value();
  }

  Region put(const std::vector<std::int64_t>& values);
  template <typename T>
  Region put_as(const std::vector<T>& values) {
    const Region region = client_->stage(values.size() * sizeof(T)).value();
    if (!values.empty()) std::memcpy(client_->data(region), values.data(), region.bytes);
    return region;
  }
  std::vector<std::int64_t> get(Region region) const;

  // What came out of an operation.
  struct Answer {
    Result<void> status;
    std::vector<std::vector<std::int64_t>> tensors;
    std::int32_t source = -1;
  };
  // Issues without waiting; *answer is filled when wait() on the id has returned.
  Result<WorkId> start(Operation operation, Answer* answer);
  // Issues and waits.
  Answer run(Operation operation);
  Result<void> wait(WorkId work, std::chrono::nanoseconds limit = std::chrono::hours(1));

  // int64 operations of the world group, or of `group`.
  Operation operation(Op op, std::vector<Region> inputs, std::vector<std::uint64_t> output_elements,
                      GroupHandle group = 0);
  std::vector<std::int64_t> all_reduce(std::vector<std::int64_t> values, GroupHandle group = 0);
  void barrier(GroupHandle group = 0);

 private:
  std::unique_ptr<RankClient> client_;
  int rank_, world_;
  GroupHandle world_group_ = 0;
  std::unordered_map<GroupHandle, std::uint64_t> seq_;
  std::list<Answer> answers_;
};

struct JobResult {
  Result<void> result;
  std::string statistics;
};

// On the test's own thread: the job must have ended well, or else with the error that is returned.
void require_ok(const JobResult& job);
Error error_of(const JobResult& job);

std::string fresh_address();
Coordinator::Options small_coordinator(int ranks, int slots);

// In a rank's program, where Catch2's assertions cannot be used: throws unless `holds`.
void expect(bool holds, const std::string& what);

// A TCP listener on this machine, for relays, and connections to it.
class LoopbackListener {
 public:
  LoopbackListener();
  int take_listener() { return std::exchange(fd_, -1); }
  int connect() const;  // a socket, the caller's

 private:
  int fd_;
  std::uint16_t port_ = 0;
};
// The same job with its ranks spread over so many hosts, each with a relay; slots are spread, too.
void spread_over_hosts(Coordinator::Options& options, int hosts, LoopbackListener& listener);
// The relays' part of it, without what differs from host to host.
Relay::Options relay_options(const Coordinator::Options& options, int host, int link_fd);

// Runs `program` on every rank, spread over PRISM_TEST_HOSTS hosts where the environment says so; a program's thrown
// std::exception is its traceback.
JobResult run_job(int ranks, int slots, const std::function<void(Rank&)>& program,
                  const std::function<void(Coordinator::Options&)>& adjust = {});
// The same with each rank in a process of its own.
JobResult run_processes(int ranks, int slots, const std::function<void(Rank&)>& program,
                        const std::function<void(Coordinator::Options&)>& adjust = {},
                        const std::function<void(std::vector<int> pids)>& meanwhile = {});

}  // namespace prism::test
