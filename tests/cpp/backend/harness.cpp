#include "backend/harness.hpp"
#include <arpa/inet.h>
#include <netinet/in.h>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <stdexcept>

#include "catch2.hpp"

namespace prism::test {
namespace {

template <typename T>
bool combine(ReduceOp op, T& sum, T x) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      sum += x;
      return true;
    case ReduceOp::kMax:
      sum = std::max(sum, x);
      return true;
    case ReduceOp::kMin:
      sum = std::min(sum, x);
      return true;
    case ReduceOp::kProduct:
      sum *= x;
      return true;
    default:
      return false;
  }
}

template <typename T, typename Accumulator>
Result<void> reduce_as(ReduceOp op, const ReducePiece& piece) {
  for (std::size_t i = 0; i < piece.numel; ++i) {
    std::optional<Accumulator> sum, part;
    for (std::size_t m = 0; m < piece.inputs.size(); ++m) {
      T value;
      std::memcpy(&value, piece.inputs[m] + i * sizeof(T), sizeof(T));
      const auto x = static_cast<Accumulator>(value);
      const bool in_part = piece.part != nullptr && piece.in_part[m] != 0;
      if ((sum && !combine(op, *sum, x)) || (in_part && part && !combine(op, *part, x)))
        return Error{ErrorCode::kInvalidInput, "not in this executor"};
      if (!sum) sum = x;
      if (in_part && !part) part = x;
    }
    if (part) std::memcpy(piece.part + i * sizeof(Accumulator), &*part, sizeof(Accumulator));
    if (op == ReduceOp::kAvg) *sum /= static_cast<Accumulator>(piece.inputs.size());
    const T result = static_cast<T>(*sum);
    std::memcpy(piece.output + i * sizeof(T), &result, sizeof(T));
  }
  return {};
}

}  // namespace

Result<void> PlainExecutor::reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) {
  for (const ReducePiece& piece : pieces) {
    if (dtype == DType::kInt64)
      PRISM_RETURN_IF_ERROR((reduce_as<std::int64_t, std::int64_t>(op, piece)));
    else if (dtype == DType::kFloat32)
      PRISM_RETURN_IF_ERROR((reduce_as<float, double>(op, piece)));
    else
      return Error{ErrorCode::kInvalidInput, "not in this executor"};
  }
  return {};
}

Rank::Rank(std::unique_ptr<RankClient> client, int rank, int world)
    : client_(std::move(client)), rank_(rank), world_(world) {}

GroupHandle Rank::world_group() {
  if (world_group_ == 0) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(world_));
    std::iota(all.begin(), all.end(), 0);
    world_group_ = group("world", all);
  }
  return world_group_;
}

Region Rank::put(const std::vector<std::int64_t>& values) { return put_as(values); }

std::vector<std::int64_t> Rank::get(Region region) const {
  std::vector<std::int64_t> values(region.bytes / sizeof(std::int64_t));
  if (!values.empty()) std::memcpy(values.data(), client_->data(region), region.bytes);
  return values;
}

Operation Rank::operation(Op op, std::vector<Region> inputs, std::vector<std::uint64_t> output_elements,
                          GroupHandle group) {
  Operation operation;
  operation.group = group == 0 ? world_group() : group;
  operation.op = op;
  operation.dtype = op == Op::kBarrier ? DType::kNone : DType::kInt64;
  if (is_reduction(op)) operation.reduce_op = ReduceOp::kSum;
  operation.inputs = std::move(inputs);
  for (const Region input : operation.inputs)
    operation.shapes.push_back({static_cast<std::int64_t>(input.bytes / sizeof(std::int64_t))});
  for (const std::uint64_t elements : output_elements)
    operation.output_bytes.push_back(elements * sizeof(std::int64_t));
  if (!is_point_to_point(op)) operation.number = operation.seq = seq_[operation.group]++;
  return operation;
}

Result<WorkId> Rank::start(Operation operation, Answer* answer) {
  return client_->issue(operation, [this, answer](const Outcome& outcome) {
    answer->status = outcome.status;
    answer->source = outcome.source;
    for (const Region region : outcome.regions) answer->tensors.push_back(get(region));
  });
}

Rank::Answer Rank::run(Operation operation) {
  Answer& answer = answers_.emplace_back();
  const auto work = start(std::move(operation), &answer);
  if (!work) return {work.error(), {}, -1};
  if (auto waited = wait(*work); !waited) {
    Answer failed;
    failed.status = waited.error();
    return failed;
  }
  return answer;
}

Result<void> Rank::wait(WorkId work, std::chrono::nanoseconds limit) {
  return client_->wait(std::span(&work, 1), Deadline::after(limit));
}

std::vector<std::int64_t> Rank::all_reduce(std::vector<std::int64_t> values, GroupHandle group) {
  const std::uint64_t count = values.size();
  const auto answer = run(operation(Op::kAllReduce, {put(values)}, {count}, group));
  if (!answer.status) throw std::runtime_error(answer.status.error().message);
  return answer.tensors.at(0);
}

void Rank::barrier(GroupHandle group) {
  const auto answer = run(operation(Op::kBarrier, {}, {}, group));
  if (!answer.status) throw std::runtime_error(answer.status.error().message);
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong: " + what);
}

void require_ok(const JobResult& job) {
  INFO((job.result ? "" : job.result.error().message));
  REQUIRE(job.result.ok());
}

Error error_of(const JobResult& job) {
  REQUIRE_FALSE(job.result.ok());
  return job.result.error();
}

std::string fresh_address() {
  static std::atomic<int> count{0};
  return fmt::format("prism-test-{}-{}", getpid(), ++count);
}

Coordinator::Options small_coordinator(int ranks, int slots) {
  Coordinator::Options options;
  options.address = fresh_address();
  options.world_size = ranks;
  options.slots = slots;
  options.join_timeout = std::chrono::seconds(60);
  options.address_space_bytes = 2ull << 30;  // mapped once per rank, in one process
  return options;
}

LoopbackListener::LoopbackListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(fd_, generic, length) == 0);
  REQUIRE(listen(fd_, 64) == 0);
  REQUIRE(getsockname(fd_, generic, &length) == 0);
  port_ = address.sin_port;
}

int LoopbackListener::connect() const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port_;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void spread_over_hosts(Coordinator::Options& options, int hosts, LoopbackListener& listener) {
  options.hosts.clear();
  const auto share = [&](int all, int host) { return all * (host + 1) / hosts - all * host / hosts; };
  for (int host = 0; host < hosts; ++host)
    options.hosts.push_back({fmt::format("h{}", host), share(options.world_size, host),
                             std::max(1, share(options.slots, host)), fmt::format("proof of {}", host),
                             fmt::format("proof for {}", host)});
  options.link_fd = listener.take_listener();
}

Relay::Options relay_options(const Coordinator::Options& options, int host, int link_fd) {
  Relay::Options relay;
  relay.address = fmt::format("{}-h{}", options.address, host);
  relay.link_fd = link_fd;
  relay.host = host;
  relay.world_size = options.world_size;
  for (int before = 0; before < host; ++before)
    relay.first_rank += options.hosts[static_cast<std::size_t>(before)].ranks;
  const auto& own = options.hosts[static_cast<std::size_t>(host)];
  relay.ranks = own.ranks;
  relay.proof = own.proof;
  relay.coordinators_proof = own.our_proof;
  relay.memory_budget_bytes = options.memory_budget_bytes;
  relay.spill_directory = options.spill_directory;
  relay.address_space_bytes = options.address_space_bytes;
  return relay;
}

namespace {

int hosts_of_environment(int ranks) {
  const char* const asked = std::getenv("PRISM_TEST_HOSTS");
  return std::min(ranks, asked != nullptr ? std::atoi(asked) : 1);
}

void run_rank(const Coordinator::Options& options, int rank, bool alone, const std::function<void(Rank&)>& program) {
  RankClient::Options client;
  client.address = options.address;
  client.rank = rank;
  client.world_size = options.world_size;
  client.alone_in_process = alone;
  client.connect_timeout = std::chrono::seconds(10);
  auto connected = RankClient::connect(client);
  if (!connected) return;
  Rank self(std::move(*connected), rank, options.world_size);
  std::string error;
  try {
    program(self);
  } catch (const std::exception& e) {
    error = fmt::format("{}", e.what());
  }
  self.client().finish(error);
}

}  // namespace

JobResult run_job(int ranks, int slots, const std::function<void(Rank&)>& program,
                  const std::function<void(Coordinator::Options&)>& adjust) {
  auto options = small_coordinator(ranks, slots);
  if (adjust) adjust(options);
  LoopbackListener listener;
  const int hosts = hosts_of_environment(ranks);
  if (hosts > 1) spread_over_hosts(options, hosts, listener);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  JobResult job;
  std::thread loop([&] { job.result = coordinator.run(); });
  std::vector<std::thread> threads, relays;
  std::vector<std::string> addresses(static_cast<std::size_t>(ranks), options.address);
  for (int host = 1; host < hosts; ++host) {
    const auto relay = relay_options(options, host, listener.connect());
    for (int rank = 0; rank < relay.ranks; ++rank)
      addresses[static_cast<std::size_t>(relay.first_rank + rank)] = relay.address;
    relays.emplace_back([relay] { static_cast<void>(Relay(relay).run()); });
  }
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto own = options;
      own.address = addresses[static_cast<std::size_t>(rank)];
      run_rank(own, rank, false, program);
    });
  for (auto& thread : threads) thread.join();
  loop.join();
  for (auto& relay : relays) relay.join();
  job.statistics = coordinator.statistics_json();
  return job;
}

JobResult run_processes(int ranks, int slots, const std::function<void(Rank&)>& program,
                        const std::function<void(Coordinator::Options&)>& adjust,
                        const std::function<void(std::vector<int>)>& meanwhile) {
  auto options = small_coordinator(ranks, slots);
  if (adjust) adjust(options);
  std::vector<int> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      run_rank(options, rank, true, program);
      _exit(0);
    }
    pids.push_back(pid);
  }
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  JobResult job;
  std::thread loop([&] { job.result = coordinator.run(); });
  if (meanwhile) meanwhile(pids);
  loop.join();
  for (const int pid : pids) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  job.statistics = coordinator.statistics_json();
  return job;
}

}  // namespace prism::test
