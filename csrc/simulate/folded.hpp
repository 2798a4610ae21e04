// Algorithms that pair numbers which differ in one bit, with any number N of members: p is the largest power of two up
// to N. The first 2 (N - p) members are pairs, of which the even one hands over to the odd one in the first step, and
// gets the result in the last; the others, and the odd ones, have the numbers 0 to p - 1 in their order.
#pragma once

namespace prism::simulate {

struct Folded {
  explicit Folded(int members) : members(members) {
    while (2LL << log <= members) ++log;
    power = 1 << log;
    paired = 2 * (members - power);
  }
  bool is_paired(int member) const { return member < paired; }
  bool hands_over(int member) const { return member < paired && member % 2 == 0; }
  int mate(int member) const { return member ^ 1; }
  // Of the member that stands for it, too.
  int number(int member) const { return member < paired ? member / 2 : member - paired / 2; }
  int member(int number) const { return number < paired / 2 ? 2 * number + 1 : number + paired / 2; }

  int members, log = 0, power = 1, paired = 0;
};

}  // namespace prism::simulate
