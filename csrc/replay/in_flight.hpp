// What is under way: the parts that ranks take in communications, from their issue to their end, and where they meet.
// Places are used again, so that this is as large as what was ever under way at once, however long the job goes on.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "replay/flat_map.hpp"
#include "replay/job.hpp"
#include "replay/loop.hpp"

namespace prism::engine {

// Times that are not known.
inline constexpr std::int64_t kUnset = INT64_MIN;

// One rank's part in one communication. Of a collective it is kept until all members of the graph are done.
struct Part {
  std::int32_t rank = -1;
  std::uint32_t comm = 0;         // of the rank's class
  std::uint32_t round = 0;        // of the period, 0: the one of the record
  std::uint32_t meeting = kNone;  // collectives that have been taken up
  std::uint32_t next = kNone;     // in its queue or its mailbox
  bool ended = false;
  std::int64_t taken_up_ns = kUnset;
  std::int64_t start_ns = kUnset;  // of its transfer
};

// A collective that some member has been taken up for.
struct Meeting {
  std::uint32_t group = 0;
  std::uint32_t size = 0;     // members
  std::uint32_t members = 0;  // of InFlight::member(): by group rank
  std::uint32_t missing = 0;  // members of the graph that have not come
  std::uint32_t left = 0;     // members of the graph that are not done
  std::int32_t root = 0;      // group rank
  std::int64_t seq = 0;
  Op op = Op::kNone;
};

class InFlight {
 public:
  InFlight(const Job& job, const Loop* loop);

  const Job& job() const { return job_; }
  void set_rounds(std::int64_t rounds) { rounds_ = rounds; }  // at first the loop's
  const ClassProgram& program(int rank) const { return (*programs_)[job_.ranks[rank].cls]; }
  const Part& operator[](std::uint32_t part) const { return parts_[part]; }
  Part& operator[](std::uint32_t part) { return parts_[part]; }
  const CommPlan& comm(std::uint32_t part) const { return program(parts_[part].rank).comms[parts_[part].comm]; }
  // As it would be numbered if the record went on.
  std::int64_t seq(int rank, std::uint32_t comm, std::uint32_t round) const;
  // Rank of a message's other end; -1 for any source.
  int peer(std::uint32_t part) const;
  std::uint32_t group(int rank, const CommPlan& comm) const {
    return job_.group_of[job_.ranks[rank].queue_base + comm.group];
  }
  std::uint32_t own_member(std::uint32_t part) const {  // group rank, in collectives
    return job_.own_member[job_.ranks[parts_[part].rank].queue_base + comm(part).group];
  }

  std::uint32_t add(int rank, std::uint32_t comm, std::uint32_t round);
  void remove(std::uint32_t part);
  // Of a rank's collectives in one group those that have not ended, as they were issued: the first ones, as many as the
  // backend has workers, are taken up. push(): whether it is one of these; pop(): the one that is then, or kNone.
  bool push(std::uint32_t part);
  std::uint32_t pop(std::uint32_t part);

  const Meeting& meeting(std::uint32_t meeting) const { return meetings_[meeting]; }
  Meeting& meeting(std::uint32_t meeting) { return meetings_[meeting]; }
  // The part's collective; a new one where nobody else has been taken up.
  std::uint32_t join(std::uint32_t part);
  void end(std::uint32_t meeting);
  // kNone: nobody has been taken up.
  std::uint32_t find(std::uint32_t group, std::int64_t seq) const;
  // Part of a member that has come; kNeverIssued: it has not; kNotRecorded.
  std::uint32_t member(const Meeting& meeting, std::uint32_t m) const { return members_[meeting.members + m]; }
  std::uint32_t member_from_root(const Meeting& meeting, std::uint32_t m) const {
    return member(meeting, (m + static_cast<std::uint32_t>(meeting.root)) % meeting.size);
  }
  std::uint32_t first_part(std::uint32_t meeting) const {  // of a member that has come
    auto m = meetings_[meeting].members;
    while (!is_entry(members_[m])) ++m;
    return members_[m];
  }
  // What a member does there, come or not: its class's communication. nullptr: it is not in the graph, or never comes.
  const CommPlan* comm_of(const Meeting& meeting, std::uint32_t m) const;
  struct Place {
    std::uint32_t comm, round;
  };
  std::optional<Place> place_of(std::uint32_t group, std::int64_t seq, int rank) const;

  // The other half of a message if it has been posted; else keeps this one. First posted, first matched; a receive from
  // any source takes the earliest send.
  std::uint32_t meet(std::uint32_t part);

  template <typename Visit>
  void for_each_part(Visit&& visit) const {
    for (std::uint32_t part = 0; part < parts_.size(); ++part)
      if (parts_[part].rank >= 0) visit(part);
  }
  std::size_t bytes() const;

 private:
  struct CollectiveKey {
    std::int64_t seq;
    std::uint32_t group, unused = 0;
    bool operator==(const CollectiveKey&) const = default;
    std::uint64_t hash() const { return mixed(static_cast<std::uint64_t>(seq) << 24 ^ group); }
    static CollectiveKey none() { return {-1, kNone}; }
  };
  struct MailboxKey {
    std::uint32_t group;
    std::int32_t source, destination, tag;  // source -1: of all, where the destination receives from any
    bool operator==(const MailboxKey&) const = default;
    std::uint64_t hash() const {
      return mixed((std::uint64_t{group} << 32 | static_cast<std::uint32_t>(destination)) ^
                   mixed(static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(tag)));
    }
    static MailboxKey none() { return {kNone, -1, -1, -1}; }
  };
  struct FreeBlocks {  // of members_
    std::uint32_t size;
    std::vector<std::uint32_t> first;
  };
  std::uint32_t& last_of_queue(std::uint32_t part);
  FreeBlocks& free_blocks(std::uint32_t size);

  const Job& job_;
  const Loop* const loop_;
  std::int64_t rounds_ = 1;
  const std::vector<ClassProgram>* const programs_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> free_parts_;
  std::vector<std::uint32_t> last_of_queue_;  // [queues] part, whose next is the first one
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> free_meetings_;
  std::vector<std::uint32_t> members_;
  std::vector<FreeBlocks> free_blocks_;
  FlatMap<CollectiveKey, std::uint32_t> meeting_of_;
  FlatMap<MailboxKey, std::uint32_t> mailboxes_;  // the last one posted, whose next is the first one
};

}  // namespace prism::engine
