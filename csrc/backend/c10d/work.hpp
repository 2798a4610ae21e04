// The Work objects that the routes hand out. A work that nobody keeps still completes.
#pragma once
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <memory>
#include <vector>

#include "backend/c10d/route.hpp"
#include "backend/client/rank_client.hpp"
#include "backend/recorder/recorder.hpp"

namespace prism {

// `inner` with its waits and its completion recorded; everything else is inner's answer.
WorkPtr recorded_work(WorkPtr inner, std::vector<CommId> comms, c10d::OpType type);

// An operation that the coordinator serves. The client's completion thread calls complete(); all else is the program's.
class CaptureWork : public c10d::Work {
 public:
  // `blocks` receive the outcome's regions in order. `source`: who has sent, unless the outcome says it.
  CaptureWork(std::shared_ptr<const GroupInfo> group, const Call& call, std::uint64_t sequence, CommId comm,
              std::vector<at::Tensor> blocks, std::chrono::milliseconds timeout, int source);
  void set_id(WorkId id) { id_ = id; }
  void complete(const Outcome& outcome);
  // Its outputs are what they shall be: complete as soon as anybody asks, without the client.
  void answered();

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override;
  void blockCurrentStream() override;
  void abort() override {}
  std::uint64_t getSequencenumber() const override { return sequence_; }
#ifdef C10D_BACKEND_HAS_HOOKS  // younger than torch 2.11
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
#endif
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void rethrow_if_failed() const;
  void note_end(std::int64_t due_ns = -1);
  bool take_answer();

  const std::shared_ptr<const GroupInfo> group_;
  const Op op_;
  const std::uint64_t sequence_;
  const CommId comm_;
  const std::chrono::milliseconds timeout_;
  std::vector<at::Tensor> blocks_, results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  WorkId id_ = 0;
  int source_;
  std::atomic<bool> done_{false};
  std::atomic<bool> answered_{false};  // and nobody has asked
  bool handed_out_ = false;            // the future; under mutex_
};

// All works of a coalesced batch as one.
WorkPtr batch_work(std::vector<c10::intrusive_ptr<CaptureWork>> works);

// The error as people see it: whose it is and in which operation.
Error operation_error(const Error& error, const GroupInfo& group, Op op, std::uint64_t sequence);

}  // namespace prism
