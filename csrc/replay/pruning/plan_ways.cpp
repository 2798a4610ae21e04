// One chunk at a time. Let one virtual member put in the virtual part and all others the identity: the algorithm's
// result is the same, and what virtual members send into the sandbox is made of three things: nothing, the virtual
// part, and what came out of the sandbox further from (reduced), or nearer to (spread) the root.
//
// The virtual part enters where a virtual member is nearest to the root, so that it is rounded once, as late as can be.
#include <algorithm>

#include "replay/pruning/planners.hpp"

namespace prism::pruning {
namespace {

class Planner {
 public:
  Planner(const Ways& ways, bool reduction, const Sandbox& sandbox, Programs& programs)
      : ways_(ways), sandbox_(sandbox), programs_(programs), reduction_(reduction) {}

  void plan(int chunk) {
    chunk_ = chunk;
    root_ = ways_.root(chunk);
    at_root_.clear();
    const bool wanted = ways_.has(Tree::kSpread) || sandbox_.has(root_);
    if (ways_.has(Tree::kReduce)) reduce(wanted);
    if (ways_.has(Tree::kSpread)) spread();
  }

 private:
  struct CameOut {
    std::int32_t at;  // the virtual member that needs it for what it sends into the sandbox
    Value value;
  };
  struct Entry {
    std::int32_t member;
    Link from;
  };

  void reduce(bool wanted) {
    came_out_.clear();
    for (const int member : sandbox_.chosen()) {
      if (member == root_) continue;
      const auto [peer, step] = ways_.above(Tree::kReduce, chunk_, member);
      const Message message{step, member, peer, chunk_, true};
      if (sandbox_.has(peer)) {
        programs_.live(message);
        continue;
      }
      const Value value = programs_.out(message);
      const auto nearest = ways_.nearest(Tree::kReduce, chunk_, member, sandbox_);
      if (nearest.member < 0)
        at_root_.push_back(value);
      else
        came_out_.push_back({nearest.below, value});
    }
    sort();
    find_entries();
    const auto latest = std::max_element(entries_.begin(), entries_.end(),
                                         [](const Entry& a, const Entry& b) { return a.from.step < b.from.step; });
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      const bool virtual_part = sandbox_.has(root_) && entry == latest;
      const Value value = wanted ? programs_.combined(chunk_, virtual_part, of(entry->from.peer)) : kNothing;
      programs_.in({entry->from.step, entry->from.peer, entry->member, chunk_, true}, value);
    }
  }

  void spread() {
    Value whole = kNothing;  // at a virtual root
    if (!sandbox_.has(root_)) whole = programs_.combined(chunk_, true, reduction_ ? at_root_ : std::vector<Value>{});
    came_out_.clear();
    for (const int member : sandbox_.chosen()) {
      links_.clear();
      ways_.below(Tree::kSpread, chunk_, member, links_);
      for (const auto& [peer, step] : links_) {
        const Message message{step, member, peer, chunk_, false};
        if (sandbox_.has(peer))
          programs_.live(message);
        else
          came_out_.push_back({peer, programs_.out(message)});
      }
    }
    sort();
    for (const int member : sandbox_.chosen()) {
      if (member == root_) continue;
      const auto [peer, step] = ways_.above(Tree::kSpread, chunk_, member);
      if (sandbox_.has(peer)) continue;
      const auto nearest = ways_.nearest(Tree::kSpread, chunk_, member, sandbox_);
      const Value value = nearest.member < 0 ? whole : of(nearest.below).front();
      programs_.in({step, peer, member, chunk_, false}, value);
    }
  }

  void find_entries() {
    entries_.clear();
    for (const int member : sandbox_.chosen()) {
      links_.clear();
      ways_.below(Tree::kReduce, chunk_, member, links_);
      for (const auto& link : links_)
        if (!sandbox_.has(link.peer)) entries_.push_back({member, link});
    }
  }

  void sort() {
    std::sort(came_out_.begin(), came_out_.end(),
              [](const CameOut& a, const CameOut& b) { return std::pair(a.at, a.value) < std::pair(b.at, b.value); });
  }
  std::span<const Value> of(int member) {
    auto one =
        std::lower_bound(came_out_.begin(), came_out_.end(), member, [](const CameOut& a, int b) { return a.at < b; });
    found_.clear();
    for (; one != came_out_.end() && one->at == member; ++one) found_.push_back(one->value);
    return found_;
  }

  const Ways& ways_;
  const Sandbox& sandbox_;
  Programs& programs_;
  bool reduction_;
  int chunk_ = 0, root_ = 0;
  std::vector<Value> at_root_, found_;
  std::vector<CameOut> came_out_;
  std::vector<Entry> entries_;
  std::vector<Link> links_;
};

}  // namespace

void plan_ways(const Ways& ways, bool reduction, const Sandbox& sandbox, Programs& programs) {
  Planner planner(ways, reduction, sandbox, programs);
  for (int chunk = 0; chunk < ways.chunks(); ++chunk) planner.plan(chunk);
}

}  // namespace prism::pruning
