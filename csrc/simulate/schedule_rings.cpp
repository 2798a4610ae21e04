// Algorithms in which every step is like the one before.
#include <algorithm>

#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

// Chunk c is owned by member c. Its sum goes from member c + 1 around to c; what is spread starts at c.
class Ring final : public Schedule {
 public:
  Ring(const CollectiveShape& shape, int rounds)
      : members_(shape.members),
        rounds_(rounds),
        first_(shape.op != Op::kAllGather),
        part_(divided(shape.bytes, shape.members)) {}
  int members() const override { return members_; }
  int steps() const override { return rounds_ * (members_ - 1); }
  int chunks() const override { return members_; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const std::int64_t chunk = (std::int64_t{member} - first_ - step) % members_;
    sends.push_back({(member + 1) % members_, part_, static_cast<int>(chunk < 0 ? chunk + members_ : chunk), 1,
                     first_ == 1 && step < members_ - 1});
    return 1;
  }
  int alike(int step) const override { return steps() - step; }

 private:
  int members_, rounds_, first_;
  std::int64_t part_;
};

// Pieces from the root on to the member before it (broadcast), or from the member behind it to the root (reduce).
class Chain final : public Schedule {
 public:
  explicit Chain(const CollectiveShape& shape)
      : members_(shape.members),
        combines_(shape.op == Op::kReduce),
        head_((shape.root + combines_) % shape.members),
        pieces_(shape.bytes) {}
  int members() const override { return members_; }
  int steps() const override { return members_ > 1 ? members_ - 2 + pieces_.count : 0; }
  int chunks() const override { return pieces_.count; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const int behind = (member - head_ + members_) % members_;
    if (behind < members_ - 1 && pieces_.has(step - behind))
      sends.push_back({(member + 1) % members_, pieces_.bytes, step - behind, 1, combines_});
    return behind > 0 && pieces_.has(step - behind + 1);
  }

 private:
  int members_;
  bool combines_;
  int head_;
  Pieces pieces_;
};

// A tensor (all_gather: each member's) is cut into equal segments of whole elements, P of them a member, the last ones
// shorter or empty. In step i member m passes segment (m + 1) P + i (all_gather, and the second half of an all_reduce:
// m P + i) on to the member before it, so that after P (N - 1) steps every member has a part that is reduced, or all
// parts. In a reduce each then sends its part to the root.
class SegmentedRing final : public Schedule {
 public:
  explicit SegmentedRing(const CollectiveShape& shape) : shape_(shape), reduces_(shape.op != Op::kAllGather) {
    constexpr std::int64_t kElement = 4, kMostBytes = 1 << 20;
    if (reduces_) per_member_ = std::max<std::int64_t>(2, divided(divided(shape.bytes, kMostBytes), shape.members));
    segment_ = divided(divided(shape.bytes, segments()), kElement) * kElement;
  }
  int members() const override { return shape_.members; }
  int steps() const override {
    if (shape_.members == 1) return 0;
    return shape_.op == Op::kAllReduce ? 2 * around() : shape_.op == Op::kReduce ? around() + 2 : around();
  }
  int lanes() const override { return 2; }
  int chunks() const override { return static_cast<int>(segments()); }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const int size = shape_.members;
    if (step == around() && shape_.op == Op::kReduce) return 0;  // so that the last step is in the other lane
    if (step > around() && shape_.op == Op::kReduce) {
      if (member != shape_.root) {
        if (const auto bytes = bytes_of_member(member))
          sends.push_back({shape_.root, bytes, static_cast<int>(member * per_member_), static_cast<int>(per_member_)});
        return 0;
      }
      int receives = 0;
      for (int other = 0; other < size; ++other) receives += other != member && bytes_of_member(other) > 0;
      return receives;
    }
    const int first = reduces_ && step < around() ? 1 : 0;
    const int within = step % around();
    const auto passed_on = [&](std::int64_t by) { return ((by + first) * per_member_ + within) % segments(); };
    const auto segment = passed_on(member);
    if (const auto bytes = bytes_at(segment))
      sends.push_back({(member + size - 1) % size, bytes, static_cast<int>(segment), 1, first == 1});
    return bytes_at(passed_on((member + 1) % size)) > 0;
  }

 private:
  // make_schedule() sees to it that twice as many can be counted.
  int around() const { return static_cast<int>(per_member_ * (shape_.members - 1)); }
  std::int64_t segments() const { return per_member_ * shape_.members; }
  std::int64_t bytes_at(std::int64_t segment) const {
    if (!reduces_)
      return std::clamp<std::int64_t>(divided(shape_.bytes, shape_.members) - segment % per_member_ * segment_, 0,
                                      segment_);
    return std::clamp<std::int64_t>(shape_.bytes - segment * segment_, 0, segment_);
  }
  std::int64_t bytes_of_member(int member) const {
    return std::clamp<std::int64_t>(shape_.bytes - member * per_member_ * segment_, 0, per_member_ * segment_);
  }

  CollectiveShape shape_;
  bool reduces_;
  std::int64_t per_member_ = 2, segment_ = 0;
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
SchedulePtr chain(const CollectiveShape& shape) { return std::make_unique<Chain>(shape); }
SchedulePtr segmented_ring(const CollectiveShape& shape) { return std::make_unique<SegmentedRing>(shape); }
SchedulePtr hierarchical_ring(const CollectiveShape& shape) { return std::make_unique<HierarchicalRing>(shape); }
SchedulePtr pairwise(const CollectiveShape& shape) { return std::make_unique<Pairwise>(shape); }
SchedulePtr dissemination(const CollectiveShape& shape) { return std::make_unique<Dissemination>(shape); }

}  // namespace prism::simulate::schedules
