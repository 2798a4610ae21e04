// Collectives under way on a network: who is in which step, and which messages are between them.
//
// A ring that has its ways for itself once all members have come is not simulated: its times follow by arithmetic
// (undisturbed.hpp) until another message needs one of these ways; then its messages of that moment go on as events.
// The times are the same to the picosecond.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "simulate/event_queue.hpp"
#include "simulate/network.hpp"
#include "simulate/schedule.hpp"
#include "simulate/undisturbed.hpp"

namespace prism::simulate {

// When the messages of a collective leave.
enum class Manner {
  // With their sender's step; a member goes to its next step when all that it sends and receives in this one has
  // arrived.
  kInSteps,
  // Once their receiver has come, too; a member waits in its steps for what it receives only, and at the end for all
  // that it has sent (Gloo's trees: each message needs its two ends and what it hands on, nothing else).
  kBothEnds,
  // As by both ends; and what a member sends to one that has come after it, and is half of the group or more before it,
  // waits for what that one sends to it: the later one's word that it is ready is behind its data (Gloo's all-to-all).
  // Messages from one member to another pass one after the other.
  kLaterFirst,
  // As in steps, but a member waits for what it receives only: what it sends is in a buffer (Gloo's rings). Messages
  // from one member to another pass one after the other.
  kBuffered,
};

class Collectives final : private Holder {
 public:
  struct Done {
    std::uint32_t run;
    std::int32_t member;
    Picoseconds at;
  };

  explicit Collectives(Network& network) : network_(network) {}

  // `endpoints`: by group rank. The number is used again once every member is done.
  std::uint32_t begin(std::unique_ptr<Schedule> schedule, std::vector<std::int32_t> endpoints,
                      Manner manner = Manner::kInSteps);
  // The member comes at `at`; at once done where the schedule has no steps. Errors as of Network::send().
  Result<void> enter(std::uint32_t run, int member, Picoseconds at, std::vector<Done>& done);
  // All members at once.
  Result<void> enter_all(std::uint32_t run, Picoseconds at, std::vector<Done>& done);
  // Of a message that is one of ours: its id has kMark.
  Result<void> delivered(const Delivery& delivery, std::vector<Done>& done);
  // The earliest end that is known without the network; then, or earlier, advance().
  Picoseconds next() const { return endings_.next(); }
  void advance(Picoseconds until, std::vector<Done>& done);
  std::uint64_t messages() const { return sent_; }  // of all that has ended, or is under way as events
  bool under_way() const { return free_messages_.size() < in_flight_.size() || endings_.next() != kNever || overdue_; }
  struct Between {
    std::uint32_t run;
    std::int32_t from, to, step;  // group ranks
  };
  // Of a message that is one of ours and has not been delivered.
  const Between& between(std::uint64_t id) const { return in_flight_[static_cast<std::uint32_t>(id & ~kMark)]; }
  const Between& refused() const { return refused_; }  // what the network had no way for, after an error

  static constexpr std::uint64_t kMark = std::uint64_t{1} << 63;

 private:
  struct Member {
    int step = -1;                     // the last that has begun; not come yet
    std::array<int, 2> outstanding{};  // [lanes] messages that the last step in it waits for
    Picoseconds came = 0;
    int posted = 0;            // its own that have not arrived, but for kBuffered
    std::uint32_t latest = 0;  // number of the last that it has sent
    bool ended = false;        // and that has been told
  };
  struct Held {
    std::int32_t from, to, step;
    std::int64_t bytes;
    Picoseconds at;  // at which its sender was ready
  };
  // While nothing disturbs a run.
  struct Alone {
    std::vector<Network::Way> ways;                    // by member, to the next
    Undisturbed begun, now;                            // as it was in the beginning, and with all that is known
    std::vector<std::pair<int, Picoseconds>> arrived;  // senders of the messages that were under way in the beginning
  };
  struct Ending {
    std::uint32_t run;
    std::int32_t member;
    std::uint32_t version;  // of the run
  };
  struct Run {
    std::unique_ptr<Schedule> schedule;
    std::vector<std::int32_t> endpoints;
    std::vector<Member> members;
    std::unordered_map<std::uint64_t, int> early;  // (member, step) -> messages that came before the member got there
    int left = 0;                                  // members that are not done
    Manner manner = Manner::kInSteps;
    std::vector<Held> held;     // kBothEnds, kLaterFirst: messages whose receiver has not come
    std::vector<Held> behind;   // kLaterFirst: messages behind the opposite ones
    int missing = 0;            // members that have not come
    int until_try = 0;          // steps to begin until it is tried again whether nothing disturbs it
    std::uint32_t version = 0;  // endings of an older one will not be
    std::unique_ptr<Alone> alone;
  };
  Result<void> go_on(std::uint32_t run, int member, Picoseconds at, std::vector<Done>& done);
  Result<void> begin_step(std::uint32_t run, int member, Picoseconds at);
  Result<void> send(const Between& message, std::int64_t bytes, Picoseconds at);
  void end(std::uint32_t run, int member, Picoseconds at, std::vector<Done>& done);
  // `all_come_at`: no member has begun.
  bool leave_alone(std::uint32_t run, std::optional<Picoseconds> all_come_at = {});
  void go_on_alone(std::uint32_t run);
  void end_alone(std::uint32_t run);
  void disturbed(std::uint32_t run, Picoseconds at) override;
  struct Left {
    int member, step;
    Picoseconds at;
  };
  template <typename Ended>
  Undisturbed settled(Alone& alone, Picoseconds until, std::vector<Left>& under_way, Ended&& ended);
  static std::uint64_t early_key(int member, int step) {
    return static_cast<std::uint64_t>(member) << 32 | static_cast<std::uint32_t>(step);
  }
  std::uint32_t new_message(const Between& message);

  Network& network_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> free_runs_;
  std::vector<Between> in_flight_;
  Between refused_{};
  std::vector<std::uint32_t> free_messages_;
  std::vector<Send> sends_;
  EventQueue<Ending> endings_;
  bool overdue_ = false;  // something ends later than the clock can show
  std::uint64_t sent_ = 0;
};

// One collective alone on a network, all members at once.
struct CollectiveTime {
  Picoseconds time = 0;  // until the last member is done
  std::uint64_t messages = 0, events = 0, packets = 0;
};
// Steps that repeat are simulated once, where all members end them at the same time. kInvalidInput: more members than
// endpoints, a time that does not fit.
Result<CollectiveTime> time_of_collective(const Topology& topology, Network& network,
                                          std::unique_ptr<Schedule> schedule);

}  // namespace prism::simulate
