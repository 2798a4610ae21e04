// PrismBackend: the c10d::Backend that torch.distributed sees. It translates c10d's methods into Calls and hands them
// to its route; the old virtual names are overridden because every torch from 2.11 on has them.
//
// Threads: any of the program's; owned by torch's ProcessGroup.
#pragma once
#include <map>
#include <mutex>

#include "backend/c10d/route.hpp"

namespace prism {

class PrismBackend : public c10d::Backend {
 public:
  template <typename T>
  using Vector = std::vector<T>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Splits = std::vector<std::int64_t>;

  PrismBackend(GroupInfo group, std::unique_ptr<Route> route);
  ~PrismBackend() override;
  // Runs its argument with Python's lock released, if this thread has it; set by the Python module. Gloo joins its
  // threads as it is destroyed, and they may need the lock to release a tensor.
  static void (*without_gil)(c10::function_ref<void()>);

  const std::string getBackendName() const override { return group_.backend; }
  bool supportsSplitting() const override { return route_->supports_splitting(); }
  bool supportsCoalescing() const override { return route_->supports_coalescing(); }
  void setTimeout(std::chrono::milliseconds timeout) override { route_->set_timeout(timeout); }
  OptionsPtr getBackendOptions() override { return route_->options(); }
  std::uint64_t getSequenceNumberForGroup() override { return route_->sequence_number(); }
  void setSequenceNumberForGroup() override {}
  void abort() override;
  void shutdown() override;
  void setGroupUid(const std::string& uid) override;
  void eagerConnectSingleDevice(at::Device device) override;
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const Vector<int>& ranks,
                   const OptionsPtr& options) override;
  BackendPtr merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& options, const int& rank,
                   const int& size) override;
  BackendPtr inner() const { return route_->inner(); }

  // What only another backend can answer: the real route asks it, capture answers as a backend without it
  // (backend_forwarding.cpp).
  bool supportsShrinking() const override;
  BackendPtr shrink(const Vector<std::int64_t>& excluded, int flags, const OptionsPtr& options) override;
  c10d::ErrorType getError() override;
  void enableCollectivesTiming() override;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  bool supportsTimeEstimation() const override;
#ifdef C10D_BACKEND_HAS_HOOKS  // the youngest of these; torch 2.11 has none of them
  bool isInitialized() override;
  void startTimeEstimate() override;
  float endTimeEstimate() override;
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override;
  bool supportsReconfigure() const override;
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
  bool supportsWindow() const override;
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
  bool supportsAbortHooks() const override;
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
  bool supportsCompletionHooks() const override;
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override;
  void suspend() override;
  void resume() override;
  std::unordered_map<std::string, std::uint64_t> getMemoryStats() override;
#endif

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
#ifdef C10D_BACKEND_HAS_HOOKS  // younger than torch 2.11
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  void startCoalescing() override { route_->start_coalescing(); }
  WorkPtr endCoalescing() override { return route_->end_coalescing(); }

 private:
  template <typename Describe, typename Send>
  WorkPtr run(Op op, c10d::OpType type, Describe describe, Send forward);
  // `call` of the backend behind the real route; without one `otherwise`.
  template <typename Call, typename Otherwise>
  auto forwarded(Call call, Otherwise otherwise) const;

  GroupInfo group_;
  std::unique_ptr<Route> route_;
  // ProcessGroup::splitGroup asks once per backend type; all types of a child share one instance.
  std::mutex children_mutex_;
  std::map<std::string, c10::weak_intrusive_ptr<c10d::Backend>> children_;
};

}  // namespace prism
