#include "backend/c10d/recording.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

#include "backend/c10d/memory_limit.hpp"
#include "backend/c10d/tensors.hpp"

namespace prism {
namespace {

struct OpenWait {
  int depth = 0;
  std::vector<CommId> comms;
};
thread_local OpenWait open_wait;

std::mutex futures_mutex;
struct HandedOut {
  CommId comm;
  const void* future;  // for comparison only
  bool operator==(const HandedOut&) const = default;
};
std::vector<HandedOut> unwaited_futures;

bool is_gloos_thread() {
  char name[16] = {};  // ProcessGroupGloo::runLoop names it
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name).starts_with("pt_gloo");
}
thread_local int others = is_gloos_thread();  // scopes of this thread that are not the program's

}  // namespace

IssueScope::IssueScope(const Call& call, const GroupInfo& group, std::int32_t batch) {
  auto* recorder = Recorder::active();
  if (!recorder) return;
  CommInfo info;
  info.op = call.op;
  const auto& tensors = call.inputs.empty() ? call.outputs : call.inputs;
  if (!tensors.empty()) info.dtype = dtype_of(tensors[0].scalar_type());
  if (is_reduction(call.op)) info.reduce_op = reduce_op_of(call.reduce_op);
  info.async = call.async;
  info.group = recorder->group(group.key, group.members);
  info.peer =
      is_point_to_point(call.op) && call.peer >= 0 && call.peer < group.size() ? group.members[call.peer] : call.root;
  info.tag = call.tag;
  info.batch = batch;
  info.input_bytes = total_bytes(call.inputs);
  info.output_bytes = total_bytes(call.outputs);
  use_communicator(*recorder, call, group, batch >= 0);
  comm_ = recorder->begin_issue(info);
}

IssueScope::~IssueScope() {
  auto* recorder = comm_ == kNoComm ? nullptr : Recorder::active();
  if (!recorder) return;
  if (std::uncaught_exceptions() > exceptions_)
    recorder->withdraw_issue(comm_);
  else
    recorder->end_issue(comm_);
}

NotOfProgram::NotOfProgram() { ++others; }
NotOfProgram::~NotOfProgram() { --others; }
OfProgram::OfProgram() : others_(std::exchange(others, 0)) {}
OfProgram::~OfProgram() { others = others_; }

Recorder* recorder_of_program() { return others > 0 ? nullptr : Recorder::active(); }

WaitScope::WaitScope() : recorder_(recorder_of_program()) {
  if (recorder_ && open_wait.depth++ == 0) recorder_->begin_wait();
}

WaitScope::~WaitScope() {
  if (!recorder_ || --open_wait.depth > 0) return;
  const auto comms = std::exchange(open_wait.comms, {});
  if (Recorder::active() == recorder_) recorder_->end_wait(comms);
}

void WaitScope::add(CommId comm) {
  if (!recorder_ || comm == kNoComm) return;
  open_wait.comms.push_back(comm);
  comm_waited(comm);
}

void record_transfer_done(CommId comm, std::int64_t at_ns) {
  if (auto* recorder = comm == kNoComm ? nullptr : Recorder::active())
    recorder->transfer_done(comm, at_ns >= 0 ? at_ns : recorder->now());
}

void future_taken(CommId comm, const void* future) {
  if (comm == kNoComm) return;
  const std::lock_guard lock(futures_mutex);
  const HandedOut taken{comm, future};
  if (std::find(unwaited_futures.begin(), unwaited_futures.end(), taken) == unwaited_futures.end())
    unwaited_futures.push_back(taken);
}

void comm_waited(CommId comm) {
  const std::lock_guard lock(futures_mutex);
  std::erase_if(unwaited_futures, [comm](const HandedOut& taken) { return taken.comm == comm; });
}

std::vector<CommId> take_unwaited_futures() {
  const std::lock_guard lock(futures_mutex);
  std::vector<CommId> comms;
  for (const auto& taken : std::exchange(unwaited_futures, {})) comms.push_back(taken.comm);
  return comms;
}

std::vector<CommId> take_unwaited_futures(const void* future) {
  {
    const std::lock_guard lock(futures_mutex);
    std::vector<CommId> comms;
    std::erase_if(unwaited_futures, [&](const HandedOut& taken) {
      if (taken.future == future) comms.push_back(taken.comm);
      return taken.future == future;
    });
    if (!comms.empty()) return comms;
  }
  return take_unwaited_futures();
}

}  // namespace prism
