// Route `capture`: inputs are staged in the run's shared memory, the coordinator matches the members' operations, and
// the completion copies the outcome into the outputs.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "backend/c10d/backward_wait.hpp"
#include "backend/c10d/monitored_barrier.hpp"
#include "backend/c10d/recording.hpp"
#include "backend/c10d/route.hpp"
#include "backend/c10d/session.hpp"
#include "backend/c10d/solo.hpp"
#include "backend/c10d/tensors.hpp"
#include "backend/c10d/work.hpp"
#include "backend/coordinator/rules.hpp"

namespace prism {
namespace {

// The element type in which the coordinator sees the operation. Where bytes only move, any type will do.
Result<DType> common_dtype(const Call& call, const Blocks& blocks) {
  DType common = DType::kNone;
  bool mixed = false;
  for (const auto* tensors : {&blocks.inputs, &blocks.outputs})
    for (const auto& tensor : *tensors) {
      const auto dtype = dtype_of(tensor.scalar_type());
      mixed |= dtype == DType::kNone || (common != DType::kNone && dtype != common);
      common = dtype;
    }
  if (!mixed) return common;
  if (!is_reduction(call.op)) return DType::kUInt8;
  return Error{ErrorCode::kInvalidInput, fmt::format("{}: the tensors have several or unknown element types; accepted "
                                                     "is one type for all of them",
                                                     name(call.op))};
}

std::vector<std::vector<std::int64_t>> shapes_of(const Call& call) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto& tensor : call.inputs.empty() ? call.outputs : call.inputs) shapes.push_back(tensor.sizes().vec());
  return shapes;
}

class CaptureRoute : public Route {
 public:
  CaptureRoute(GroupInfo group, std::chrono::milliseconds timeout, bool coalescing)
      : group_(std::make_shared<GroupInfo>(std::move(group))),
        options_(c10::make_intrusive<c10d::Backend::Options>(group_->backend, timeout)),
        coalescing_(coalescing) {
    auto joined = is_solo() ? join_alone() : client().join_group(group_->key, group_->members);
    if (!joined) fail(joined.error(), Op::kNone);
    handle_ = *joined;
    options_->group_name = group_->key.substr(group_->key.rfind('/') + 1);
    options_->global_ranks_in_group.assign(group_->members.begin(), group_->members.end());
  }

  ~CaptureRoute() override {
    if (auto* client = session_client()) client->leave_group(handle_);
  }

  WorkPtr issue(Call& call, Forward) override {
    expect_waits_after_backward();
    auto blocks = blocks_of(call, group_->size());
    if (!blocks) fail(blocks.error(), call.op);
    auto operation = operation_of(call, *blocks);
    const IssueScope scope(call, *group_, batch_);
    operation.number = next_number(call);
    try {
      return submit(call, *blocks, operation, scope.comm());
    } catch (...) {
      return_number(call);  // as the recorder withdraws it
      throw;
    }
  }

  void start_coalescing() override {
    coalescing_now_ = true;
    if (auto* recorder = Recorder::active()) batch_ = recorder->next_batch();
  }

  WorkPtr end_coalescing() override {
    coalescing_now_ = false;
    batch_ = -1;
    return batch_work(std::exchange(batch_works_, {}));
  }

  void monitored_barrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    Call call;
    call.op = Op::kBarrier;
    call.type = c10d::OpType::BARRIER;
    call.async = false;
    if (client().is_emulated()) {  // who is virtual cannot be looked for: all of them come
      issue(call, [](c10d::Backend&) { return WorkPtr(); })->wait(kNoTimeout);
      return;
    }
    CommId comm = kNoComm;
    {
      const IssueScope scope(call, *group_, -1);
      comm = scope.comm();
      next_number(call);
    }
    WaitScope scope;
    scope.add(comm);
    const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
    if (!is_solo())
      prism::monitored_barrier(client(), handle_, *group_, monitored_barriers_++, timeout, wait_all_ranks);
    record_transfer_done(comm);
  }

  std::unique_ptr<Route> split(const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>&,
                               const OptionsPtr& options, const GroupInfo& child) override {
    if (child.rank < 0) return nullptr;
    return make_capture_route(child, options ? options->timeout : options_->timeout, coalescing_);
  }

  std::unique_ptr<Route> merge(const c10::intrusive_ptr<c10d::Store>&, const OptionsPtr& options,
                               const GroupInfo& merged) override {
    return make_capture_route(merged, options->timeout, coalescing_);
  }

  bool supports_splitting() const override { return true; }
  bool supports_coalescing() const override { return coalescing_; }
  OptionsPtr options() override { return options_; }
  void set_timeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  std::uint64_t sequence_number() override { return sequence_; }
  void abort() override {}
  void shutdown() override {}

 private:
  static RankClient& client() {
    auto* client = session_client();
    if (!client) throw_distributed({ErrorCode::kAborted, "this process has no connection to a coordinator"});
    return *client;
  }

  [[noreturn]] void fail(const Error& error, Op op) const {
    throw_distributed(operation_error(error, *group_, op, sequence_));
  }

  // As the trace counts them: together with what the recorder has just taken down, so that both name the same
  // operation.
  std::uint64_t next_number(const Call& call) {
    if (call.op == Op::kRecv) return 0;
    const std::lock_guard lock(numbers_mutex_);
    if (!is_point_to_point(call.op)) return collectives_++;
    return sends_[{call.peer, call.tag}]++;
  }

  // Of a rank alone. Those that are answered without a question count as well: rules, and what was kept of a run with
  // peers, go by the number among all.
  std::uint64_t next_received(const Call& call) {
    const std::lock_guard lock(numbers_mutex_);
    return receives_[{call.peer, call.tag}]++;
  }

  // A call that is wrong in itself is refused here, as a real backend does: the program may catch that and go on.
  Operation operation_of(const Call& call, const Blocks& blocks) const {
    Operation operation;
    operation.group = handle_;
    operation.op = call.op;
    operation.root = call.root;
    operation.peer = call.peer;
    operation.tag = call.tag;
    auto dtype = common_dtype(call, blocks);
    if (!dtype) fail(dtype.error(), call.op);
    operation.dtype = *dtype;
    if (is_reduction(call.op)) {
      operation.reduce_op = reduce_op_of(call.reduce_op);
      const bool scaled = call.reduce_op.op_ == c10d::ReduceOp::PREMUL_SUM;
      if (operation.reduce_op == ReduceOp::kNone || (scaled && group_->backend == "gloo"))  // Gloo cannot scale
        fail({ErrorCode::kInvalidInput,
              "this reduction is not supported under capture; accepted: sum, avg, product, "
              "min, max, bit_and, bit_or, bit_xor, and with nccl premul_sum"},
             call.op);
    }
    if (call.tag < 0 && group_->backend != "nccl")  // as Gloo; NCCL ignores tags
      fail({ErrorCode::kInvalidInput, fmt::format("tag {}; accepted: 0 and above", call.tag)}, call.op);
    operation.shapes = shapes_of(call);
    for (const auto& block : blocks.outputs) operation.output_bytes.push_back(bytes_of(block));
    for (const auto& block : blocks.inputs) operation.inputs.push_back({.bytes = bytes_of(block)});
    if (auto checked = rules::check_call(operation, group_->size(), group_->rank); !checked)
      fail(checked.error(), call.op);
    return operation;
  }

  void return_number(const Call& call) {
    if (call.op == Op::kRecv) return;
    const std::lock_guard lock(numbers_mutex_);
    if (!is_point_to_point(call.op))
      --collectives_;
    else
      --sends_[{call.peer, call.tag}];
  }

  // Of a rank that runs alone: a group of its own stands for each of the program's.
  Result<GroupHandle> join_alone() const {
    const std::int32_t self = group_->members[group_->rank];
    return client().join_group(fmt::format("{}/rank{}", group_->key, self), {&self, 1});
  }

  // The answers pass through the coordinator, as what this rank gathers from itself: completions come when and where
  // they come with peers.
  int answer_alone(const Call& call, const Blocks& blocks, Operation& operation) {
    const auto inputs = put_in(call, blocks);
    const auto reply = ask_rules({*group_, operation.op, operation.reduce_op, operation.root, operation.peer,
                                  operation.tag, operation.number, inputs, blocks.outputs});
    if (call.op == Op::kRecv && call.peer < 0) {  // it is one of that peer's messages, too
      const std::lock_guard lock(numbers_mutex_);
      ++receives_[{reply.source, call.tag}];
    }
    Operation alone;
    alone.group = operation.group;
    alone.op = reply.outputs.empty() ? Op::kBarrier : Op::kAllGatherCoalesced;
    alone.dtype = reply.outputs.empty() ? DType::kNone : DType::kUInt8;
    alone.number = operation.number;
    alone.output_bytes = operation.output_bytes;
    for (const auto bytes : operation.output_bytes) alone.shapes.push_back({static_cast<std::int64_t>(bytes)});
    alone.inputs = stage(reply.outputs, call.op);
    alone.seq = alone_sequence_++;
    operation = std::move(alone);
    return reply.source;
  }

  static std::vector<at::Tensor> put_in(const Call& call, const Blocks& blocks) {
    const NotOfProgram scaling;
    return is_reduction(call.op) ? scaled_inputs(call.reduce_op, blocks.inputs) : blocks.inputs;
  }

  // What we do in the place of a real backend takes no emulated time.
  struct StandingClock {
    RankClient& client;
    explicit StandingClock(RankClient& client) : client(client) { client.stand_clock(); }
    ~StandingClock() { client.go_on_clock(); }
    StandingClock(const StandingClock&) = delete;
  };

  WorkPtr submit(const Call& call, const Blocks& blocks, Operation& operation, CommId comm) {
    synchronize_devices(blocks.outputs);  // earlier work on the device may still read them
    if (call.device && session_uses_device()) synchronize_device(*call.device);
    if (is_solo()) {
      const auto sequence = is_point_to_point(call.op) ? 0 : sequence_++;
      const bool from_anybody = call.op == Op::kRecv && call.peer < 0;
      if (call.op == Op::kRecv) operation.number = next_received(call);
      if (!from_anybody && answer_quickly(call.op, group_->rank, blocks.inputs, blocks.outputs)) {
        auto work = new_work(call, blocks, comm, sequence, -1);
        work->answered();
        return handed_out(work);
      }
      const int source = answer_alone(call, blocks, operation);
      return hand_over(call, blocks, operation, comm, sequence, source);
    }
    const StandingClock standing(client());
    if (call.op == Op::kRecv && client().is_emulated()) operation.number = next_received(call);
    operation.inputs = stage(put_in(call, blocks), call.op);
    if (!is_point_to_point(call.op)) operation.seq = sequence_++;
    return hand_over(call, blocks, operation, comm, operation.seq, -1);
  }

  // `source`: who has sent, where the coordinator will not know.
  WorkPtr hand_over(const Call& call, const Blocks& blocks, Operation& operation, CommId comm, std::uint64_t sequence,
                    int source) {
    if (const auto timeout = timeout_of(call); is_short(timeout)) operation.timeout = timeout;
    auto work = new_work(call, blocks, comm, sequence, source);
    auto issued = client().issue(operation, [work](const Outcome& outcome) { work->complete(outcome); });
    if (!issued) fail(issued.error(), call.op);
    work->set_id(*issued);
    return handed_out(work);
  }

  WorkPtr handed_out(const c10::intrusive_ptr<CaptureWork>& work) {
    if (coalescing_now_) batch_works_.push_back(work);
    return work;
  }

  std::chrono::milliseconds timeout_of(const Call& call) const {
    return call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  }

  c10::intrusive_ptr<CaptureWork> new_work(const Call& call, const Blocks& blocks, CommId comm, std::uint64_t sequence,
                                           int source) {
    return c10::make_intrusive<CaptureWork>(group_, call, sequence, comm, blocks.outputs, timeout_of(call), source);
  }

  static std::uint64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size();
  }

  std::vector<Region> stage(const std::vector<at::Tensor>& tensors, Op op) {
    const NotOfProgram staging;
    std::vector<Region> regions;
    for (const auto& tensor : tensors) {
      auto region = client().stage(bytes_of(tensor));
      if (!region) {
        for (const auto staged : regions) client().discard(staged);
        fail(region.error(), op);
      }
      regions.push_back(*region);
      copy_to_bytes(tensor, client().data(*region));
    }
    return regions;
  }

  const std::shared_ptr<const GroupInfo> group_;
  const c10::intrusive_ptr<c10d::Backend::Options> options_;
  const bool coalescing_;
  GroupHandle handle_ = 0;
  std::atomic<std::uint64_t> sequence_{0};  // without monitored barriers
  std::atomic<std::uint64_t> alone_sequence_{0};
  std::mutex numbers_mutex_;
  std::uint64_t collectives_ = 0;
  std::map<std::pair<int, int>, std::uint64_t> sends_, receives_;  // by (peer, tag); receives_: of a rank alone
  std::atomic<std::uint64_t> monitored_barriers_{0};
  bool coalescing_now_ = false;
  std::int32_t batch_ = -1;
  std::vector<c10::intrusive_ptr<CaptureWork>> batch_works_;
};

}  // namespace

std::unique_ptr<Route> make_capture_route(const GroupInfo& group, std::chrono::milliseconds timeout, bool coalescing) {
  return std::make_unique<CaptureRoute>(group, timeout, coalescing);
}

}  // namespace prism
