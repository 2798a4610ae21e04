#include "backend/c10d/sparse.hpp"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace prism {
namespace {

// [members * rows, ...]: the members' `rows` rows, in rank order; mine are the first of them.
at::Tensor gather_rows(c10d::Backend& backend, const at::Tensor& mine, std::int64_t rows,
                       std::chrono::milliseconds timeout) {
  auto shape = mine.sizes().vec();
  shape[0] = rows;
  auto padded = at::zeros(shape, mine.options());
  padded.narrow(0, 0, mine.size(0)).copy_(mine);
  shape[0] = rows * backend.getSize();
  auto all = at::empty(shape, mine.options());
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  backend._allgather_base(all, padded, options)->wait();
  return all;
}

// The sum is there when the call returns.
class DoneWork : public c10d::Work {
 public:
  DoneWork(int rank, at::Tensor tensor)
      : Work(rank, c10d::OpType::ALLREDUCE),
        results_{std::move(tensor)},
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {
    future_->markCompleted(c10::IValue(results_));
    finish();
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  void blockCurrentStream() override {}
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::vector<at::Tensor> results_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

WorkPtr sparse_all_reduce(c10d::Backend& backend, at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM,
              "all_reduce of a sparse tensor: only sum is supported, as with Gloo");
  const auto mine = tensor.coalesce();
  const auto count = at::full({1}, mine._nnz(), at::kLong);
  const auto counts = gather_rows(backend, count, 1, options.timeout);
  const auto most = counts.max().item<std::int64_t>();
  const auto indices = gather_rows(backend, mine.indices().t().contiguous(), most, options.timeout);
  const auto values = gather_rows(backend, mine.values(), most, options.timeout);
  at::Tensor sum;
  for (std::int64_t member = 0; member < backend.getSize(); ++member) {
    const auto rows = counts[member].item<std::int64_t>();
    const auto part = at::sparse_coo_tensor(indices.narrow(0, member * most, rows).t(),
                                            values.narrow(0, member * most, rows), tensor.sizes());
    sum = sum.defined() ? sum.add(part) : part;
  }
  tensor.copy_(sum.coalesce());
  return c10::make_intrusive<DoneWork>(backend.getRank(), tensor);
}

}  // namespace prism
