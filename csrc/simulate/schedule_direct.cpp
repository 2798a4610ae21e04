// One step in which everybody sends to everybody, or the root to or from everybody.
#include <algorithm>
#include <cmath>

#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

class Direct final : public Schedule {
 public:
  explicit Direct(const CollectiveShape& shape) : shape_(shape) {
    const bool whole = shape.op == Op::kAllReduce || shape.op == Op::kBroadcast || shape.op == Op::kReduce;
    bytes_ = whole ? shape.bytes : divided(shape.bytes, shape.members);
    from_root_ = shape.op == Op::kBroadcast || shape.op == Op::kScatter;
    to_root_ = shape.op == Op::kReduce || shape.op == Op::kGather;
    for (const auto bytes : shape.received) all_received_ += static_cast<double>(bytes);
  }
  int members() const override { return shape_.members; }
  int steps() const override { return shape_.members > 1 ? 1 : 0; }
  int part(int member, int, std::vector<Send>& sends) const override {
    const int others = shape_.members - 1;
    const bool is_root = member == shape_.root;
    if (to_root_) {
      if (!is_root) sends.push_back({shape_.root, bytes_});
      return is_root ? others : 0;
    }
    // From its neighbour on, so that not all begin with member 0.
    for (int i = 1; i <= others && (!from_root_ || is_root); ++i) {
      const int to = static_cast<int>((std::int64_t{member} + i) % shape_.members);
      sends.push_back({to, shape_.sent.empty() ? bytes_ : bytes_between(member, to)});
    }
    return !from_root_ ? others : is_root ? 0 : 1;
  }

 private:
  std::int64_t bytes_between(int from, int to) const {
    const auto share = static_cast<double>(shape_.received[to]) / std::max(all_received_, 1.0);
    return std::llround(static_cast<double>(shape_.sent[from]) * share);
  }

  CollectiveShape shape_;
  double all_received_ = 0;
  std::int64_t bytes_ = 0;
  bool from_root_ = false, to_root_ = false;
};

}  // namespace

SchedulePtr direct(const CollectiveShape& shape) { return std::make_unique<Direct>(shape); }

}  // namespace prism::simulate::schedules
