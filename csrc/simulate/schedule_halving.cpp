// Recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005).
#include "simulate/folded.hpp"
#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

// The tensor is cut into p chunks, one a number. A number's part is halved in each step of the first phase, and doubled
// in each of the second.
class HalvingDoubling final : public Schedule {
 public:
  explicit HalvingDoubling(const CollectiveShape& shape) : shape_(shape), folded_(shape.members) {
    halves_ = shape.op != Op::kAllGather;
    doubles_ = shape.op != Op::kReduceScatter;
  }
  int members() const override { return shape_.members; }
  int steps() const override { return (halves_ + doubles_) * folded_.log + (folded_.paired > 0 ? 2 : 0); }
  // The blocks of pairs are halves of a number's.
  int chunks() const override { return folded_.paired == 0 || (halves_ && doubles_) ? folded_.power : 0; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    if (folded_.paired > 0) {
      if (step == 0 || step == steps() - 1) {
        if (!folded_.is_paired(member)) return 0;
        if (folded_.hands_over(member) != (step == 0)) return 1;
        sends.push_back({folded_.mate(member), step == 0 ? before() : after(), 0, folded_.power, step == 0});
        return 0;
      }
      if (folded_.hands_over(member)) return 0;
      --step;
    }
    const bool halving = halves_ && step < folded_.log;
    const int index = halving ? step : step - (halves_ ? folded_.log : 0);
    const int distance = halving ? folded_.power >> (index + 1) : 1 << index;
    const int number = folded_.number(member), partner = number ^ distance;
    sends.push_back({folded_.member(partner), divided(shape_.bytes, folded_.power / distance),
                     (halving ? partner : number) & ~(distance - 1), distance, halving});
    return 1;
  }

 private:
  std::int64_t before() const { return halves_ ? shape_.bytes : divided(shape_.bytes, shape_.members); }
  std::int64_t after() const { return doubles_ ? shape_.bytes : divided(shape_.bytes, shape_.members); }

  CollectiveShape shape_;
  Folded folded_;
  bool halves_ = true, doubles_ = true;
};

// What a number has is the sum of twice as many with each step.
class RecursiveDoubling final : public Schedule {
 public:
  explicit RecursiveDoubling(const CollectiveShape& shape) : bytes_(shape.bytes), folded_(shape.members) {}
  int members() const override { return folded_.members; }
  int steps() const override { return folded_.log + (folded_.paired > 0 ? 2 : 0); }
  int chunks() const override { return 1; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    int to = 0;
    const bool last = folded_.paired > 0 && step == steps() - 1;
    if (folded_.paired > 0 && (step == 0 || last)) {
      if (!folded_.is_paired(member)) return 0;
      if (folded_.hands_over(member) == last) return 1;
      to = folded_.mate(member);
    } else {
      if (folded_.hands_over(member)) return 0;
      to = folded_.member(folded_.number(member) ^ 1 << (step - (folded_.paired > 0)));
    }
    sends.push_back({to, bytes_, 0, 1, !last});
    return folded_.paired > 0 && step == 0 ? 0 : !last;
  }

 private:
  std::int64_t bytes_;
  Folded folded_;
};

}  // namespace

SchedulePtr halving_doubling(const CollectiveShape& shape) { return std::make_unique<HalvingDoubling>(shape); }
SchedulePtr recursive_doubling(const CollectiveShape& shape) { return std::make_unique<RecursiveDoubling>(shape); }

}  // namespace prism::simulate::schedules
