// Recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005).
#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

// Of N members the first 2 (N - p) are pairs, p the largest power of two: the even one hands over to the odd one first
// and gets the result last.
class HalvingDoubling final : public Schedule {
 public:
  explicit HalvingDoubling(const CollectiveShape& shape) : shape_(shape) {
    while ((std::int64_t{2} << log_) <= shape.members) ++log_;
    power_ = 1 << log_;
    paired_ = 2 * (shape.members - power_);
    halves_ = shape.op != Op::kAllGather;
    doubles_ = shape.op != Op::kReduceScatter;
  }
  int members() const override { return shape_.members; }
  int steps() const override { return (halves_ + doubles_) * log_ + (paired_ > 0 ? 2 : 0); }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const bool even = member % 2 == 0, paired = member < paired_;
    if (paired_ > 0) {
      if (step == 0 || step == steps() - 1) {
        if (!paired) return 0;
        if (even == (step == 0)) {
          sends.push_back({even ? member + 1 : member - 1, step == 0 ? before() : after()});
          return 0;
        }
        return 1;
      }
      if (paired && even) return 0;
      --step;
    }
    const bool halving = halves_ && step < log_;
    const int index = halving ? step : step - (halves_ ? log_ : 0);
    const int distance = halving ? power_ >> (index + 1) : 1 << index;
    const int partner = number(member) ^ distance;
    sends.push_back(
        {partner < paired_ / 2 ? 2 * partner + 1 : partner + paired_ / 2, divided(shape_.bytes, power_ / distance)});
    return 1;
  }

 private:
  int number(int member) const { return member < paired_ ? member / 2 : member - paired_ / 2; }
  std::int64_t before() const { return halves_ ? shape_.bytes : divided(shape_.bytes, shape_.members); }
  std::int64_t after() const { return doubles_ ? shape_.bytes : divided(shape_.bytes, shape_.members); }

  CollectiveShape shape_;
  int log_ = 0, power_ = 1, paired_ = 0;
  bool halves_ = true, doubles_ = true;
};

}  // namespace

SchedulePtr halving_doubling(const CollectiveShape& shape) { return std::make_unique<HalvingDoubling>(shape); }

}  // namespace prism::simulate::schedules
