// Route: what becomes of a process group's operations: `real` passes them to a backend of torch's, `capture` to the
// coordinator. One per PrismBackend, called from the program's threads.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>
#include <vector>

#include "backend/c10d/call.hpp"

namespace prism {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;
// The operation as a call of another backend's method.
using Forward = c10::function_ref<WorkPtr(c10d::Backend&)>;

class Route {
 public:
  virtual ~Route() = default;
  // The backend that calls may go to without passing by issue(): nothing here wants to know of them.
  virtual c10d::Backend* bypass() const { return nullptr; }
  virtual WorkPtr issue(Call& call, Forward forward) = 0;
  virtual void start_coalescing() = 0;
  virtual WorkPtr end_coalescing() = 0;
  virtual void monitored_barrier(const c10d::BarrierOptions& options, bool wait_all_ranks) = 0;

  // The route of a subgroup made by ProcessGroup::splitGroup, nullptr where this process is no member.
  virtual std::unique_ptr<Route> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                       const OptionsPtr& options, const GroupInfo& child) = 0;
  // The route of a group that remote groups join to form; `merged` names its members.
  virtual std::unique_ptr<Route> merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& options,
                                       const GroupInfo& merged) = 0;
  virtual bool supports_splitting() const = 0;
  virtual bool supports_coalescing() const = 0;
  virtual OptionsPtr options() = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual std::uint64_t sequence_number() = 0;
  virtual BackendPtr inner() const { return {}; }  // null where there is none
  virtual void abort() = 0;
  virtual void shutdown() = 0;
};

std::unique_ptr<Route> make_real_route(const GroupInfo& group, BackendPtr inner);
// `coalescing`: whether the backend that the program asked for has startCoalescing (with it batch_isend_irecv gives one
// work instead of several).
std::unique_ptr<Route> make_capture_route(const GroupInfo& group, std::chrono::milliseconds timeout, bool coalescing);

}  // namespace prism
