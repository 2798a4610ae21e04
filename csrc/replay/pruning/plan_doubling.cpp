// Recursive doubling has no root: every member sums for itself. So the virtual part may not enter wherever it is
// needed; one virtual member puts it in, the others the identity, and what a virtual member has before each exchange is
// followed back through its partners to what came out of the sandbox. Members whose block holds neither sandbox members
// nor the one with the virtual part have the identity. Every sum is of two and rounded as a member would, so that all
// members get the same bits.
#include <algorithm>

#include "replay/pruning/planners.hpp"
#include "simulate/folded.hpp"

namespace prism::pruning {
namespace {

class Doubling {
 public:
  Doubling(int members, const Sandbox& sandbox, Programs& programs)
      : folded_(members), sandbox_(sandbox), programs_(programs) {
    while (giver_ < members && sandbox.has(giver_)) ++giver_;  // `members` where nobody is virtual
    for (const int member : sandbox.chosen()) of_interest_.push_back(folded_.number(member));
    if (giver_ < members) {
      of_interest_.push_back(folded_.number(giver_));
      virtual_part_ = programs.combined(0, true, {});
    }
    std::sort(of_interest_.begin(), of_interest_.end());
    came_out_.resize(sandbox.chosen().size() * static_cast<std::size_t>(steps()), kNothing);
    values_.resize(static_cast<std::size_t>(folded_.power) * static_cast<std::size_t>(folded_.log + 1), kUnknown);
  }

  void plan() {
    for (const int member : sandbox_.chosen()) send(member);
    for (const int member : sandbox_.chosen()) receive(member);
  }

 private:
  static constexpr Value kUnknown = -2;
  int steps() const { return folded_.log + 2; }
  int first() const { return folded_.paired > 0 ? 1 : 0; }
  int partner(int member, int exchange) const { return folded_.member(folded_.number(member) ^ (1 << exchange)); }

  void send(int member) {
    const auto to = [&](int step, int peer, bool combines) {
      const Message message{step, member, peer, 0, combines};
      if (sandbox_.has(peer))
        programs_.live(message);
      else
        came_out(member, step) = programs_.out(message);
    };
    if (folded_.hands_over(member)) return to(0, folded_.mate(member), true);
    for (int exchange = 0; exchange < folded_.log; ++exchange) to(first() + exchange, partner(member, exchange), true);
    if (folded_.is_paired(member)) to(first() + folded_.log, folded_.mate(member), false);
  }

  void receive(int member) {
    const auto from = [&](int step, int peer, bool combines, Value value) {
      programs_.in({step, peer, member, 0, combines}, value);
    };
    const int mate = folded_.mate(member), last = first() + folded_.log;
    if (folded_.hands_over(member)) {
      if (!sandbox_.has(mate)) from(last, mate, false, before(folded_.number(mate), folded_.log));
      return;
    }
    if (folded_.is_paired(member) && !sandbox_.has(mate)) from(0, mate, true, input(mate));
    for (int exchange = 0; exchange < folded_.log; ++exchange) {
      const int peer = partner(member, exchange);
      if (!sandbox_.has(peer)) from(first() + exchange, peer, true, before(folded_.number(peer), exchange));
    }
  }

  Value input(int member) const { return member == giver_ ? virtual_part_ : kNothing; }

  // What the virtual member of this number has before an exchange.
  Value before(int number, int exchange) {
    const auto begin = std::lower_bound(of_interest_.begin(), of_interest_.end(), number >> exchange << exchange);
    if (begin == of_interest_.end() || *begin >> exchange != number >> exchange) return kNothing;
    Value& value = values_[static_cast<std::size_t>(number) * static_cast<std::size_t>(folded_.log + 1) +
                           static_cast<std::size_t>(exchange)];
    if (value == kUnknown) value = exchange == 0 ? at_first(number) : after(number, exchange - 1);
    return value;
  }
  Value at_first(int number) {
    const int member = folded_.member(number);
    if (!folded_.is_paired(member)) return input(member);
    const int mate = folded_.mate(member);
    return sum(input(member), sandbox_.has(mate) ? came_out(mate, 0) : input(mate));
  }
  Value after(int number, int exchange) {
    const int peer = partner(folded_.member(number), exchange);
    const Value theirs =
        sandbox_.has(peer) ? came_out(peer, first() + exchange) : before(folded_.number(peer), exchange);
    return sum(before(number, exchange), theirs);
  }
  Value sum(Value one, Value other) {
    const Value both[] = {one, other};
    return programs_.combined(0, false, both);
  }
  Value& came_out(int member, int step) {
    return came_out_[static_cast<std::size_t>(sandbox_.index(member) * steps() + step)];
  }

  simulate::Folded folded_;
  const Sandbox& sandbox_;
  Programs& programs_;
  int giver_ = 0;  // of the virtual part
  Value virtual_part_ = kNothing;
  std::vector<int> of_interest_;  // numbers, ascending
  std::vector<Value> came_out_;   // [sandbox member][step]
  std::vector<Value> values_;     // [number][exchange]
};

}  // namespace

void plan_recursive_doubling(int members, const Sandbox& sandbox, Programs& programs) {
  Doubling(members, sandbox, programs).plan();
}

}  // namespace prism::pruning
