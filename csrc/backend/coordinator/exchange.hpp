// Operations that belong together: the members' parts of one collective, or a send and its receive. Loop thread only.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/coordinator/pending.hpp"
#include "backend/protocol/operation.hpp"
#include "core/result.hpp"

namespace prism {

struct Exchange;

// Unmatched halves of messages to one (destination, tag), by source; -1: receives from any source. First in, first out.
struct Mailbox {
  using Queues = std::unordered_map<std::int32_t, std::deque<std::shared_ptr<Exchange>>>;
  Queues sends, receives;
};

struct Group {
  std::string key;
  std::vector<std::int32_t> members;                                         // global ranks, by group rank
  std::vector<bool> joined;                                                  // by group rank
  std::size_t left = 0;                                                      // members that have left it
  std::unordered_map<std::uint64_t, std::shared_ptr<Exchange>> collectives;  // not complete, by seq
  std::unordered_map<std::uint64_t, Mailbox> mail;                           // by destination and tag
};

// One member's part.
struct Arrival {
  int rank = -1;    // global
  int member = -1;  // group rank
  WorkId work = 0;  // 0: has not come
  Operation operation;
};

// Of an exchange with virtual members: which of its parts are due, and what they get.
struct Emulated {
  struct Part {
    std::uint32_t comm = 0;    // of the rank, as Emulation::find() says
    std::int64_t due_ns = -1;  // -1: it is not due yet
    bool delivered = false;
  };
  std::vector<Part> parts;     // by arrival
  std::shared_ptr<void> held;  // what readers read
  std::vector<Region> results;
  bool recorded = true;    // the trace has it, not only the period that is repeated
  bool complete = false;   // everything that anybody gets is there
  bool invented = false;   // something that a virtual member puts in is not known
  bool unchanged = false;  // then: what is in the outputs stays
};

struct Exchange : Pending {
  std::shared_ptr<Group> group;
  std::uint64_t seq = 0;  // collectives: per group; messages: order of coming
  bool collective = true;
  std::vector<Arrival> arrivals;  // collective: by group rank; message: sender, receiver
  std::size_t arrived = 0;
  int first = -1;               // index of the first arrival
  std::size_t absent_sum = 0;   // of the indices that have not come: the index itself once it is one
  int urged = -1;               // global rank on which this waits alone
  std::uint64_t timeout = 0;    // handle in Timeouts
  std::optional<Error> failed;  // timed out; members that come late learn it
  bool isolated = true;         // every member had nothing else outstanding when it came
  std::size_t expected = 0;     // arrivals of real members; the others' are filled in
  std::shared_ptr<Emulated> emulated;

  bool complete() const { return arrived == expected; }
  const Operation& operation() const { return arrivals[static_cast<std::size_t>(first)].operation; }
  // "all_reduce #5 of group 'tp0'", "recv #3 from rank 2, tag 7, of group 'world'"
  std::string describe() const override;
  std::vector<int> missing() const override;
};

}  // namespace prism
