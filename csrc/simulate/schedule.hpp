// How an algorithm cuts a collective into messages. Nothing is laid out in advance: each member's part in each step is
// computed when the member gets there, so that 65,536 members cost no more than what is under way.
//
// A member goes to its next step when everything that it sends and receives in this one has arrived (other ways:
// collectives.hpp, Manner).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism::simulate {

struct Send {
  std::int32_t to = 0;  // group rank
  std::int64_t bytes = 0;
  // What it holds, where the schedule says so (Schedule::chunks()): that many chunks of the tensor from this one on, as
  // the sender has them when the step begins.
  std::int32_t chunk = 0, chunks = 1;
  bool combines = false;  // the receiver reduces them into its own; else they take their place
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual int members() const = 0;
  virtual int steps() const = 0;
  // What `member` sends in `step`, appended; how many messages it receives.
  virtual int part(int member, int step, std::vector<Send>& sends) const = 0;
  // Into how many chunks the tensor is cut (of an all_gather or reduce_scatter: all members' blocks); 0 where it is not
  // said what messages hold.
  virtual int chunks() const { return 0; }
  // So many steps of a member are under way at a time: each waits for the one that is so many before it. 1 or 2.
  virtual int lanes() const { return 1; }
  // How many steps, from this one on, have the same messages.
  virtual int alike(int step) const {
    static_cast<void>(step);
    return 1;
  }
};

struct CollectiveShape {
  Op op = Op::kNone;
  int members = 1;
  // The tensor of all_reduce, broadcast, reduce; all that an all_gather or gather brings together, a reduce_scatter or
  // scatter spreads; what one member of an all_to_all sends to all. A part of it is rounded up to whole bytes.
  std::int64_t bytes = 0;
  int root = 0;      // group rank
  int per_node = 1;  // hierarchical: consecutive members that share a node
  // all_to_all, direct, where members differ: what each sends and receives, itself included; what one sends is spread
  // over the others as all that is received. Empty: all the same.
  std::vector<std::int64_t> sent = {}, received = {};
};

// "ring", "segmented_ring", "tree", "halving_doubling", "recursive_doubling", "direct", "pairwise", "dissemination",
// "hierarchical"; empty: what an op usually runs by.
//   ring                all_reduce, reduce_scatter, all_gather: N - 1 or 2 (N - 1) steps with the neighbours;
//                       broadcast, reduce: pieces follow each other from the root around, or around to the root
//   segmented_ring      all_reduce, reduce, all_gather: rings with every part in two or more segments of which two are
//                       under way at a time; empty segments are not sent (Gloo's)
//   tree                all_reduce: two binary trees, each of half the tensor, in pieces (NCCL's double binary tree);
//                       broadcast, reduce, gather, scatter: binomial
//   halving_doubling    all_reduce, reduce_scatter, all_gather: log2 N steps; where N is no power of two, the
//                       members that are too many hand over to a neighbour
//   recursive_doubling  all_reduce: log2 N steps, in each the whole tensor with one partner; other numbers of members
//                       as there
//   direct              all but barrier: one step, everybody to everybody, or the root to and from everybody
//   pairwise            all_to_all: N - 1 steps, each with one partner
//   dissemination       barrier: log2 N steps
//   hierarchical        all_reduce: within the node, between the nodes, within the node; rings
// kInvalidInput: an algorithm that does not exist or not for this op, sizes that do not fit.
Result<std::unique_ptr<Schedule>> make_schedule(const CollectiveShape& shape, std::string_view algorithm);
std::string default_algorithm(Op op);
// The variants of an operation (coalesced, into one tensor) are one kind of traffic.
Op kind_of(Op op);

}  // namespace prism::simulate
