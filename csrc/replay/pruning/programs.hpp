// Where planners put the messages that are left, and what virtual members send; makes programs of it.
//
// Values that virtual members have are numbered in the order in which they come to be: what came out of the sandbox,
// and what is combined of such. Nobody says who holds a value: assistants are made of the members that share some.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "replay/pruning.hpp"
#include "replay/pruning/sandbox.hpp"

namespace prism::pruning {

using Value = std::int32_t;
constexpr Value kNothing = -1;  // the identity

struct Message {
  std::int32_t step, from, to, chunk;
  bool combines;  // at the receiver
};

class Programs {
 public:
  // `steps`, `chunks`: of the schedule.
  Programs(const Sandbox& sandbox, int members, int steps, int chunks);
  // Between sandbox members.
  void live(const Message& message);
  // From a sandbox member to a virtual one; the value is what came out.
  Value out(const Message& message);
  // From a virtual member to a sandbox member.
  void in(const Message& message, Value value);
  // Nothing of nothing, and a single source, are themselves.
  Value combined(std::int32_t chunk, bool virtual_part, std::span<const Value> sources);
  PrunedCollective finish();

 private:
  struct Known {
    std::int32_t from = -1, to = -1;  // that came out
    std::int32_t step = 0;            // it came out, or is combined
    std::int32_t last = -1;           // step of its use; -1: of no use
    std::int32_t chunk = 0;
    std::uint32_t first_source = 0, sources = 0;
    bool virtual_part = false;
    std::int32_t buffer = -1;
  };
  struct Arrival {
    Message message;
    Value value;
  };
  void member_step(int member, MemberStep::Kind kind, int step, int peer, int chunk);
  Value add(Known known);
  void find_uses();
  std::vector<std::int32_t> make_assistants();
  void number_buffers(Assistant& assistant);
  void count_edges(const SandboxMember& member);
  std::int32_t node(Value value) const { return plan_.members + value; }
  std::int32_t part_of(std::int32_t node);
  void join(std::int32_t a, std::int32_t b) { parts_[part_of(a)] = part_of(b); }

  const Sandbox& sandbox_;
  PrunedCollective plan_;
  std::vector<Known> values_;
  std::vector<Value> sources_;
  std::vector<Arrival> arrivals_;
  std::vector<std::int32_t> parts_;                              // of members, then of values: disjoint sets
  std::vector<std::array<std::vector<std::int32_t>, 2>> peers_;  // by sandbox member: whom it receives from, sends to
};

}  // namespace prism::pruning
