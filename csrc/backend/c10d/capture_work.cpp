#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/c10d/recording.hpp"
#include "backend/c10d/session.hpp"
#include "backend/c10d/tensors.hpp"
#include "backend/c10d/work.hpp"

namespace prism {
namespace {

using c10::ivalue::Future;

RankClient& client_or_throw() {
  auto* client = session_client();
  if (!client) throw_distributed({ErrorCode::kAborted, "this process has left the capture"});
  return *client;
}

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors)
    if (!tensor.is_cpu() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

// What a profile of the real backend calls the operation: Gloo's and NCCL's short names, ours where they have none.
std::string profiling_title(const GroupInfo& group, const Call& call) {
  const bool nccl = group.backend == "nccl";
  const auto title = [&]() -> std::string_view {
    switch (call.op) {
      case Op::kAllReduceCoalesced:
        return nccl ? "allreduce_coalesced" : "all_reduce";
      case Op::kAllGatherCoalesced:
        return "all_gather";
      case Op::kAllGatherIntoTensor:
        return nccl ? "_all_gather_base" : "all_gather";
      case Op::kAllGatherIntoTensorCoalesced:
        return nccl ? "all_gather_into_tensor_coalesced" : "all_gather";
      case Op::kReduceScatterTensor:
        return nccl ? "_reduce_scatter_base" : "reduce_scatter";
      case Op::kAllToAllSingle:
        return "all_to_all";
      case Op::kBarrier:
        return nccl ? "all_reduce_barrier" : "barrier";
      case Op::kRecv:
        return call.type == c10d::OpType::RECVANYSOURCE ? "recvAnySource" : "recv";
      default:
        return name(call.op);
    }
  }();
  return fmt::format("{}:{}", group.backend, title);
}

class BatchWork : public c10d::Work {
 public:
  explicit BatchWork(std::vector<c10::intrusive_ptr<CaptureWork>> works)
      : Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    WaitScope scope;  // one wait for all of them
    for (const auto& work : works_) work->wait(timeout);
    return true;
  }
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_)
      if (auto failure = work->exception()) return failure;
    return nullptr;
  }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> results;
    for (const auto& work : works_)
      for (auto& tensor : work->result()) results.push_back(tensor);
    return results;
  }
  void synchronize() override {
    for (const auto& work : works_) work->synchronize();
  }
  void blockCurrentStream() override { wait(kNoTimeout); }
  c10::intrusive_ptr<Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    c10::List<c10::intrusive_ptr<Future>> futures(c10::FutureType::create(c10::ListType::ofTensors()));
    for (const auto& work : works_) futures.push_back(work->getFuture());
    auto results = result();
    future_ = c10::make_intrusive<Future>(c10::ListType::ofTensors(), devices_of(results));
    c10::collectAll(futures)->addCallback([future = future_, results](Future& all) {
      for (const c10::IValue& one : all.value().toListRef())
        if (const auto done = one.toFuture(); done->hasError()) return future->setError(done->exception_ptr());
      future->markCompleted(c10::IValue(results));
    });
    return future_;
  }

 private:
  std::vector<c10::intrusive_ptr<CaptureWork>> works_;
  c10::intrusive_ptr<Future> future_;
};

}  // namespace

Error operation_error(const Error& error, const GroupInfo& group, Op op, std::uint64_t sequence) {
  std::string which = is_point_to_point(op) ? std::string() : fmt::format(" number {}", sequence);
  return {error.code, fmt::format("rank {}, {}{} in group '{}' ({}): {}", group.members[group.rank], name(op), which,
                                  group.key, group.backend, error.message)};
}

WorkPtr batch_work(std::vector<c10::intrusive_ptr<CaptureWork>> works) {
  return c10::make_intrusive<BatchWork>(std::move(works));
}

CaptureWork::CaptureWork(std::shared_ptr<const GroupInfo> group, const Call& call, std::uint64_t sequence, CommId comm,
                         std::vector<at::Tensor> blocks, std::chrono::milliseconds timeout, int source)
    : Work(group->rank, call.type, profiling_title(*group, call).c_str(),
           call.inputs.empty() ? call.outputs : call.inputs),
      group_(std::move(group)),
      op_(call.op),
      sequence_(sequence),
      comm_(comm),
      timeout_(timeout),
      blocks_(std::move(blocks)),
      results_(call.outputs.empty() ? call.inputs : call.outputs),
      future_(c10::make_intrusive<Future>(c10::ListType::ofTensors(), devices_of(results_))),
      source_(source) {}

void CaptureWork::complete(const Outcome& outcome) {
  std::exception_ptr failure;
  if (!outcome.status) {
    const auto error = operation_error(outcome.status.error(), *group_, op_, sequence_);
    failure = std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, error.message));
  } else {
    try {
      const NotOfProgram copying;
      TORCH_INTERNAL_ASSERT(outcome.unchanged || outcome.regions.size() == blocks_.size());
      for (std::size_t i = 0; i < outcome.regions.size(); ++i)
        if (blocks_[i].numel() > 0) copy_from_bytes(client_or_throw().data(outcome.regions[i]), blocks_[i]);
    } catch (...) {
      failure = std::current_exception();
    }
    if (outcome.source >= 0) source_ = outcome.source;
  }
  blocks_.clear();
  note_end(outcome.due_ns);
  bool followed = false;  // by callbacks of the program
  {
    const std::lock_guard lock(mutex_);
    exception_ = failure;
    done_ = true;
    if (handed_out_) future_completed();
    followed = handed_out_;
  }
  if (auto* client = session_client(); client && followed) client->wake_clock();
  // Before the future: its callbacks may wait for this very work.
  record_callbacks(comm_, [&] {
    if (failure)
      future_->setError(failure);
    else
      future_->markCompleted(c10::IValue(results_));
  });
}

// Whether anybody will ask or not.
void CaptureWork::answered() {
  blocks_.clear();
  note_end();
  answered_ = true;
}

// For the recorder and the profiler; the first time counts.
void CaptureWork::note_end(std::int64_t due_ns) {
  record_transfer_done(comm_, due_ns);
  if (const auto end_profiled = std::exchange(recordFunctionEndCallback_, nullptr)) end_profiled();
}

// Whether it was for this caller to complete it.
bool CaptureWork::take_answer() { return answered_.exchange(false); }

void CaptureWork::rethrow_if_failed() const {
  if (auto failure = exception()) std::rethrow_exception(failure);
}

bool CaptureWork::wait(std::chrono::milliseconds timeout) {
  WaitScope scope;
  scope.add(comm_);
  if (take_answer()) complete({});
  if (!done_) {
    // The operation's own timeout, where the coordinator counts it, comes first.
    const auto patience = timeout == kNoTimeout ? timeout_ + std::chrono::seconds(1) : timeout;
    if (auto waited = client_or_throw().wait({&id_, 1}, capture_deadline(patience)); !waited && !done_)
      throw_distributed(operation_error(waited.error(), *group_, op_, sequence_));
  }
  rethrow_if_failed();
  return true;
}

bool CaptureWork::isCompleted() {
  if (take_answer()) complete({});
  return done_ || client_or_throw().poll(id_) || done_;
}

bool CaptureWork::isSuccess() const { return done_ && !exception(); }

std::exception_ptr CaptureWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

// Where others would put a wait into the current stream, the host waits: then the outcome is there for any stream.
void CaptureWork::synchronize() {
  if (!devices_of(results_).empty()) wait(kNoTimeout);
}

void CaptureWork::blockCurrentStream() { wait(kNoTimeout); }

c10::intrusive_ptr<Future> CaptureWork::getFuture() {
  future_taken(comm_, future_.get());
  if (take_answer()) {  // what hangs on it runs where it runs with peers
    const auto self = c10::intrusive_ptr<CaptureWork>::reclaim_copy(this);
    auto issued = client_or_throw().complete_at_once([self](const Outcome& outcome) { self->complete(outcome); });
    if (!issued) throw_distributed(operation_error(issued.error(), *group_, op_, sequence_));
    id_ = *issued;
  }
  const std::lock_guard lock(mutex_);
  if (!handed_out_ && !done_) {
    handed_out_ = true;
    future_handed_out();
  }
  return future_;
}

}  // namespace prism
