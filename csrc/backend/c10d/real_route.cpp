// Route `real`: every call goes to a backend of torch's. While a recorder is active its work comes back wrapped, so
// that waits and completions are seen; otherwise the work is returned as it is.
#include <fmt/format.h>

#include <atomic>

#include "backend/c10d/backward_wait.hpp"
#include "backend/c10d/recording.hpp"
#include "backend/c10d/route.hpp"
#include "backend/c10d/work.hpp"

namespace prism {
namespace {

class RealRoute : public Route {
 public:
  RealRoute(GroupInfo group, BackendPtr inner) : group_(std::move(group)), inner_(std::move(inner)) {}

  c10d::Backend* bypass() const override { return Recorder::active() ? nullptr : inner_.get(); }

  WorkPtr issue(Call& call, Forward forward) override {
    expect_waits_after_backward();
    const IssueScope scope(call, group_, batch_);
    auto work = [&] {
      const NotOfProgram inside;  // what the backend takes for itself
      return forward(*inner_);
    }();
    if (scope.comm() == kNoComm) return work;
    if (batch_ >= 0) batch_comms_.push_back(scope.comm());
    if (!work) return work;  // of a coalesced batch: the batch's work comes from end_coalescing()
    return recorded_work(std::move(work), {scope.comm()}, call.type);
  }

  void start_coalescing() override {
    if (auto* recorder = Recorder::active()) batch_ = recorder->next_batch();
    inner_->startCoalescing();
  }

  WorkPtr end_coalescing() override {
    auto work = inner_->endCoalescing();
    batch_ = -1;
    auto comms = std::exchange(batch_comms_, {});
    if (!work || comms.empty()) return work;
    return recorded_work(std::move(work), std::move(comms), c10d::OpType::COALESCED);
  }

  void monitored_barrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    Call call;
    call.op = Op::kBarrier;
    call.type = c10d::OpType::BARRIER;
    call.async = false;
    const IssueScope scope(call, group_, -1);
    WaitScope wait;
    inner_->monitoredBarrier(options, wait_all_ranks);
    record_transfer_done(scope.comm());
    wait.add(scope.comm());
  }

  std::unique_ptr<Route> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                               const OptionsPtr& options, const GroupInfo& child) override {
    auto inner = inner_->split(store, ranks, options);
    return inner ? make_real_route(child, std::move(inner)) : nullptr;
  }

  std::unique_ptr<Route> merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& options,
                               const GroupInfo& merged) override {
    return make_real_route(merged, inner_->merge(store, options, merged.rank, merged.size()));
  }

  bool supports_splitting() const override { return inner_->supportsSplitting(); }
  bool supports_coalescing() const override { return inner_->supportsCoalescing(); }
  OptionsPtr options() override { return inner_->getBackendOptions(); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  std::uint64_t sequence_number() override { return inner_->getSequenceNumberForGroup(); }
  BackendPtr inner() const override { return inner_; }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  GroupInfo group_;
  BackendPtr inner_;
  std::int32_t batch_ = -1;
  std::vector<CommId> batch_comms_;
};

}  // namespace

std::unique_ptr<Route> make_real_route(const GroupInfo& group, BackendPtr inner) {
  return std::make_unique<RealRoute>(group, std::move(inner));
}

}  // namespace prism
