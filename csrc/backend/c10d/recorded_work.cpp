#include <ATen/core/ivalue.h>

#include <mutex>
#include <utility>

#include "backend/c10d/recording.hpp"
#include "backend/c10d/work.hpp"

namespace prism {
namespace {

using c10::ivalue::Future;

class RecordedWork : public c10d::Work {
 public:
  RecordedWork(WorkPtr inner, std::vector<CommId> comms, c10d::OpType type)
      : Work(-1, type), inner_(std::move(inner)), comms_(std::move(comms)) {
    // Gloo's messages have no future and tell of their completion in wait() only.
    if (c10d::isP2POp(type)) return;
    try {
      source_ = inner_->getFuture();
    } catch (const c10::Error&) {
      return;
    }
    if (source_) source_->addCallback([comms = comms_](Future&) { done(comms); });
  }

  bool wait(std::chrono::milliseconds timeout) override {
    WaitScope scope;
    for (const auto comm : comms_) scope.add(comm);
    const bool result = inner_->wait(timeout);
    if (!source_) done(comms_);
    return result;
  }

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  float getDuration() const override { return inner_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }
  c10::intrusive_ptr<Future> getFutureResult() override { return inner_->getFutureResult(); }
#ifdef C10D_BACKEND_HAS_HOOKS  // younger than torch 2.11, as are these two
  std::chrono::milliseconds getTimeout() const override { return inner_->getTimeout(); }
  std::uint64_t getCompletionKey() const override { return inner_->getCompletionKey(); }
#endif

  // A future of our own, completed by inner's, so that callbacks are seen as what this communication set off. Where a
  // future carries device events it must stay inner's.
  c10::intrusive_ptr<Future> getFuture() override {
    if (!source_) return inner_->getFuture();
    const std::lock_guard lock(mutex_);
    if (!source_->devices().empty()) {
      for (const auto comm : comms_) future_taken(comm, source_.get());
      return source_;
    }
    if (!future_) {
      future_ = c10::make_intrusive<Future>(source_->elementType());
      source_->addCallback([future = future_, comms = comms_](Future& source) {
        record_callbacks(comms.front(), [&] {
          if (source.hasError())
            future->setError(source.exception_ptr());
          else
            future->markCompleted(source.value());
        });
      });
    }
    for (const auto comm : comms_) future_taken(comm, future_.get());
    return future_;
  }

 private:
  static void done(const std::vector<CommId>& comms) {
    for (const auto comm : comms) record_transfer_done(comm);
  }

  WorkPtr inner_;
  std::vector<CommId> comms_;
  c10::intrusive_ptr<Future> source_;  // inner's future
  c10::intrusive_ptr<Future> future_;
};

}  // namespace

WorkPtr recorded_work(WorkPtr inner, std::vector<CommId> comms, c10d::OpType type) {
  return c10::make_intrusive<RecordedWork>(std::move(inner), std::move(comms), type);
}

}  // namespace prism
