#include "backend/c10d/backend.hpp"

#include <torch/version.h>

#include <utility>

#include "backend/c10d/memory_limit.hpp"
#include "backend/c10d/sparse.hpp"

namespace prism {
namespace {

using c10d::OpType;

// torch's name for what a Work is, only shown to people; before 2.15 these two had none of their own.
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 215
constexpr OpType kAllGatherTensorsType = OpType::ALLGATHER_INTO_TENSOR_COALESCED;
constexpr OpType kReduceScatterTensorsType = OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
constexpr OpType kAllGatherTensorsType = OpType::COALESCED;
constexpr OpType kReduceScatterTensorsType = OpType::COALESCED;
#endif

// [tensor][member] -> member-major
std::vector<at::Tensor> member_major(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> flat;
  if (lists.empty()) return flat;
  flat.reserve(lists.size() * lists[0].size());
  for (std::size_t member = 0; member < lists[0].size(); ++member)
    for (const auto& list : lists) {
      TORCH_CHECK(list.size() == lists[0].size(), "expected the same number of tensors for each member, got ",
                  list.size(), " and ", lists[0].size());
      flat.push_back(list[member]);
    }
  return flat;
}

std::vector<at::Tensor> concatenated(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> flat;
  for (const auto& list : lists) flat.insert(flat.end(), list.begin(), list.end());
  return flat;
}

template <typename Options>
void copy_common(Call& call, const Options& options) {
  call.timeout = options.timeout;
  call.async = options.asyncOp;
}

}  // namespace

PrismBackend::PrismBackend(GroupInfo group, std::unique_ptr<Route> route)
    : Backend(group.rank, group.size()), group_(std::move(group)), route_(std::move(route)) {}

void (*PrismBackend::without_gil)(c10::function_ref<void()>) = nullptr;

PrismBackend::~PrismBackend() {
  const auto drop = [this] {
    route_.reset();
    drop_communicator(group_);
  };
  without_gil ? without_gil(drop) : drop();
}

void PrismBackend::abort() {
  route_->abort();
  drop_communicator(group_);
}

void PrismBackend::shutdown() {
  route_->shutdown();
  drop_communicator(group_);
}

void PrismBackend::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  if (auto inner = route_->inner()) inner->setGroupUid(uid);
}

void PrismBackend::eagerConnectSingleDevice(at::Device device) {
  if (auto inner = route_->inner()) inner->eagerConnectSingleDevice(device);
}

BackendPtr PrismBackend::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                               const OptionsPtr& options) {
  const std::lock_guard lock(children_mutex_);
  const std::string name = options ? options->group_name : std::string();
  if (auto known = children_.find(name); known != children_.end())
    if (auto child = known->second.lock()) return child;
  GroupInfo group;
  group.backend = group_.backend;
  group.key = group_.key.substr(0, group_.key.rfind('/') + 1) + name;
  group.rank = -1;
  for (const int rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < group_.size(), "split: group rank ", rank, " is not below the group's size ",
                group_.size());
    if (rank == group_.rank) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(group_.members[rank]);
  }
  auto route = route_->split(store, ranks, options, group);
  if (!route) return nullptr;
  auto child = c10::make_intrusive<PrismBackend>(std::move(group), std::move(route));
  children_.insert_or_assign(name, c10::weak_intrusive_ptr<c10d::Backend>(child));
  return child;
}

template <typename Describe, typename Send>
WorkPtr PrismBackend::run(Op op, OpType type, Describe describe, Send forward) {
  if (auto* other = route_->bypass()) return forward(*other);
  Call call;
  call.op = op;
  call.type = type;
  describe(call);
  return route_->issue(call, forward);
}

WorkPtr PrismBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return run(
      Op::kBroadcast, OpType::BROADCAST,
      [&](Call& call) {
        copy_common(call, options);
        call.root = static_cast<int>(options.rootRank);
        (call.root == group_.rank ? call.inputs : call.outputs) = tensors;
      },
      [&](Backend& inner) { return inner.broadcast(tensors, options); });
}

WorkPtr PrismBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse() && !route_->inner())
    return sparse_all_reduce(*this, tensors[0], options);
  return run(
      Op::kAllReduce, OpType::ALLREDUCE,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.inputs = call.outputs = tensors;
      },
      [&](Backend& inner) { return inner.allreduce(tensors, options); });
}

WorkPtr PrismBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (auto inner = route_->inner()) return inner->allreduce_sparse(tensors, options);
  return sparse_all_reduce(*this, tensors.at(0), options);
}

WorkPtr PrismBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return run(
      Op::kAllReduceCoalesced, OpType::ALLREDUCE_COALESCED,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.inputs = call.outputs = tensors;
      },
      [&](Backend& inner) { return inner.allreduce_coalesced(tensors, options); });
}

WorkPtr PrismBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return run(
      Op::kReduce, OpType::REDUCE,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.root = static_cast<int>(options.rootRank);
        call.inputs = tensors;
        if (call.root == group_.rank) call.outputs = tensors;
      },
      [&](Backend& inner) { return inner.reduce(tensors, options); });
}

WorkPtr PrismBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return run(
      Op::kAllGather, OpType::ALLGATHER,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = inputs;
        call.outputs = member_major(outputs);
      },
      [&](Backend& inner) { return inner.allgather(outputs, inputs, options); });
}

WorkPtr PrismBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return run(
      Op::kAllGatherIntoTensor, OpType::_ALLGATHER_BASE,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = {input};
        call.outputs = {output};
        call.output_layout = Layout::kBlocksPerMember;
      },
      [&](Backend& inner) { return inner._allgather_base(output, input, options); });
}

WorkPtr PrismBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  return run(
      Op::kAllGatherCoalesced, OpType::ALLGATHER_COALESCED,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = inputs;
        call.outputs = concatenated(outputs);  // here the outer list is the members'
      },
      [&](Backend& inner) { return inner.allgather_coalesced(outputs, inputs, options); });
}

WorkPtr PrismBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  return run(
      Op::kAllGatherIntoTensorCoalesced, kAllGatherTensorsType,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = inputs;
        call.outputs = outputs;
        call.output_layout = Layout::kBlocksPerMember;
      },
      [&](Backend& inner) { return inner.allgather_into_tensor_coalesced(outputs, inputs, options); });
}

WorkPtr PrismBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return run(
      Op::kGather, OpType::GATHER,
      [&](Call& call) {
        copy_common(call, options);
        call.root = static_cast<int>(options.rootRank);
        call.inputs = inputs;
        if (call.root == group_.rank) call.outputs = member_major(outputs);
      },
      [&](Backend& inner) { return inner.gather(outputs, inputs, options); });
}

#ifdef C10D_BACKEND_HAS_HOOKS
WorkPtr PrismBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
  return run(
      Op::kGather, OpType::GATHER,
      [&](Call& call) {
        copy_common(call, options);
        call.root = static_cast<int>(options.rootRank);
        call.inputs = {input};
        if (call.root == group_.rank) call.outputs = {output};
        call.output_layout = Layout::kBlocksPerMember;
      },
      [&](Backend& inner) { return inner.gather_into_tensor(output, input, options); });
}
#endif

WorkPtr PrismBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return run(
      Op::kScatter, OpType::SCATTER,
      [&](Call& call) {
        copy_common(call, options);
        call.root = static_cast<int>(options.rootRank);
        if (call.root == group_.rank) call.inputs = concatenated(inputs);
        call.outputs = outputs;
      },
      [&](Backend& inner) { return inner.scatter(outputs, inputs, options); });
}

WorkPtr PrismBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  return run(
      Op::kReduceScatter, OpType::REDUCE_SCATTER,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.inputs = member_major(inputs);
        call.outputs = outputs;
      },
      [&](Backend& inner) { return inner.reduce_scatter(outputs, inputs, options); });
}

WorkPtr PrismBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& options) {
  return run(
      Op::kReduceScatterTensor, OpType::_REDUCE_SCATTER_BASE,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.inputs = {input};
        call.input_layout = Layout::kBlocksPerMember;
        call.outputs = {output};
      },
      [&](Backend& inner) { return inner._reduce_scatter_base(output, input, options); });
}

WorkPtr PrismBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  return run(
      Op::kReduceScatterTensorCoalesced, kReduceScatterTensorsType,
      [&](Call& call) {
        copy_common(call, options);
        call.reduce_op = options.reduceOp;
        call.inputs = inputs;
        call.input_layout = Layout::kBlocksPerMember;
        call.outputs = outputs;
      },
      [&](Backend& inner) { return inner.reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

WorkPtr PrismBackend::alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                                    const c10d::AllToAllOptions& options) {
  return run(
      Op::kAllToAllSingle, OpType::ALLTOALL_BASE,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = {input};
        call.outputs = {output};
        call.input_layout = call.output_layout = Layout::kBlocksPerMember;
        call.input_splits = &input_splits;
        call.output_splits = &output_splits;
      },
      [&](Backend& inner) { return inner.alltoall_base(output, input, output_splits, input_splits, options); });
}

WorkPtr PrismBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return run(
      Op::kAllToAll, OpType::ALLTOALL,
      [&](Call& call) {
        copy_common(call, options);
        call.inputs = inputs;
        call.outputs = outputs;
      },
      [&](Backend& inner) { return inner.alltoall(outputs, inputs, options); });
}

WorkPtr PrismBackend::barrier(const c10d::BarrierOptions& options) {
  return run(
      Op::kBarrier, OpType::BARRIER,
      [&](Call& call) {
        copy_common(call, options);
        call.device = options.device;
      },
      [&](Backend& inner) { return inner.barrier(options); });
}

void PrismBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  route_->monitored_barrier(options, wait_all_ranks);
}

WorkPtr PrismBackend::send(Tensors& tensors, int destination, int tag) {
  return run(
      Op::kSend, OpType::SEND,
      [&](Call& call) {
        call.peer = destination;
        call.tag = tag;
        call.inputs = tensors;
      },
      [&](Backend& inner) { return inner.send(tensors, destination, tag); });
}

WorkPtr PrismBackend::recv(Tensors& tensors, int source, int tag) {
  return run(
      Op::kRecv, OpType::RECV,
      [&](Call& call) {
        call.peer = source;
        call.tag = tag;
        call.outputs = tensors;
      },
      [&](Backend& inner) { return inner.recv(tensors, source, tag); });
}

WorkPtr PrismBackend::recvAnysource(Tensors& tensors, int tag) {
  return run(
      Op::kRecv, OpType::RECVANYSOURCE,
      [&](Call& call) {
        call.tag = tag;
        call.outputs = tensors;
      },
      [&](Backend& inner) { return inner.recvAnysource(tensors, tag); });
}

}  // namespace prism
