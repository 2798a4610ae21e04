#include "backend/c10d/backward_wait.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <mutex>
#include <set>

#include "backend/c10d/recording.hpp"
#include "backend/c10d/session.hpp"

namespace prism {
namespace {

std::mutex tasks_mutex;
std::set<int> prepared_tasks;

// Final callbacks run in the order they were queued, on one thread, and may queue more: the first of ours precedes
// DDP's, which is queued after the last bucket's issue; the one it queues itself comes behind all others.
void before_other_callbacks(int task) {
  {
    const std::lock_guard lock(tasks_mutex);
    prepared_tasks.erase(task);
  }
  const auto comms = take_unwaited_futures();
  auto* client = session_client();
  const bool lend = client && futures_outstanding();
  if (comms.empty() && !lend) return;
  auto wait = std::make_shared<WaitScope>();
  for (const auto comm : comms) wait->add(comm);
  const bool emulated = lend && client->is_emulated();
  if (emulated)
    client->sleep_outside();
  else if (lend)
    client->lend_slot();
  torch::autograd::Engine::get_default_engine().queue_callback([wait, emulated]() mutable {
    if (auto* ours = session_client(); ours && emulated) ours->wake_outside();
    wait.reset();
  });
}

}  // namespace

void expect_waits_after_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return;
  {
    const std::lock_guard lock(tasks_mutex);
    if (!prepared_tasks.insert(task).second) return;
  }
  torch::autograd::Engine::get_default_engine().queue_callback([task] { before_other_callbacks(task); });
}

}  // namespace prism
