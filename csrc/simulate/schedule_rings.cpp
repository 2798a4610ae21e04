// Algorithms in which every step is like the one before.
#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

class Ring final : public Schedule {
 public:
  Ring(const CollectiveShape& shape, int rounds)
      : members_(shape.members), rounds_(rounds), part_(divided(shape.bytes, shape.members)) {}
  int members() const override { return members_; }
  int steps() const override { return rounds_ * (members_ - 1); }
  int part(int member, int, std::vector<Send>& sends) const override {
    sends.push_back({(member + 1) % members_, part_});
    return 1;
  }
  int alike(int step) const override { return steps() - step; }

 private:
  int members_, rounds_;
  std::int64_t part_;
};

// Reduce-scatter within each node, all-reduce of each member's part with its like on the other nodes, all-gather
// within.
class HierarchicalRing final : public Schedule {
 public:
  explicit HierarchicalRing(const CollectiveShape& shape)
      : per_node_(shape.per_node), nodes_(shape.members / shape.per_node), part_(divided(shape.bytes, per_node_)) {}
  int members() const override { return per_node_ * nodes_; }
  int steps() const override { return 2 * within() + between(); }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const int node = member / per_node_, local = member % per_node_;
    if (is_between(step))
      sends.push_back({(node + 1) % nodes_ * per_node_ + local, divided(part_, nodes_)});
    else
      sends.push_back({node * per_node_ + (local + 1) % per_node_, part_});
    return 1;
  }
  int alike(int step) const override {
    if (is_between(step)) return within() + between() - step;
    return step < within() ? within() - step : steps() - step;
  }

 private:
  int within() const { return per_node_ - 1; }
  int between() const { return 2 * (nodes_ - 1); }
  bool is_between(int step) const { return step >= within() && step < within() + between(); }
  int per_node_, nodes_;
  std::int64_t part_;
};

class Pairwise final : public Schedule {
 public:
  explicit Pairwise(const CollectiveShape& shape)
      : members_(shape.members), part_(divided(shape.bytes, shape.members)) {}
  int members() const override { return members_; }
  int steps() const override { return members_ - 1; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    sends.push_back({static_cast<int>((std::int64_t{member} + step + 1) % members_), part_});
    return 1;
  }

 private:
  int members_;
  std::int64_t part_;
};

// Everybody has heard of twice as many with each step.
class Dissemination final : public Schedule {
 public:
  explicit Dissemination(const CollectiveShape& shape) : members_(shape.members) {
    while ((std::int64_t{1} << steps_) < members_) ++steps_;
  }
  int members() const override { return members_; }
  int steps() const override { return steps_; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    sends.push_back({static_cast<int>((member + (std::int64_t{1} << step)) % members_), 1});
    return 1;
  }

 private:
  int members_, steps_ = 0;
};

}  // namespace

SchedulePtr ring(const CollectiveShape& shape, int rounds) { return std::make_unique<Ring>(shape, rounds); }
SchedulePtr hierarchical_ring(const CollectiveShape& shape) { return std::make_unique<HierarchicalRing>(shape); }
SchedulePtr pairwise(const CollectiveShape& shape) { return std::make_unique<Pairwise>(shape); }
SchedulePtr dissemination(const CollectiveShape& shape) { return std::make_unique<Dissemination>(shape); }

}  // namespace prism::simulate::schedules
