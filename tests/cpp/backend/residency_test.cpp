// Which ranks stay on a device that does not hold them all. A device of 100 bytes, of which a sixteenth (6) is kept
// free; process 10 + r is rank r.
#include "backend/device/residency.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "backend/device/fake_device_swap.hpp"
#include "catch2.hpp"

using namespace prism;

namespace {

using Kind = Residency::Step::Kind;
constexpr int kFirstPid = 10;

// One slot: ranks run one after the other and then wait for all others, so that the highest rank is the last to run.
struct Machine {
  FakeDeviceSwap fake;
  Residency residency;
  std::vector<int> order;  // to run: the present one first
  std::vector<std::string> moves;

  Machine(int ranks, std::uint64_t capacity, SwapMode mode = SwapMode::kAuto)
      : fake(options(capacity)), residency(mode, std::vector<int>(static_cast<std::size_t>(ranks)), 1) {
    residency.measured(0, fake.memory(0));
    for (int rank = 0; rank < ranks; ++rank) order.push_back(rank);
  }
  static FakeDeviceSwap::Options options(std::uint64_t capacity) {
    FakeDeviceSwap::Options options;
    options.capacity_bytes = capacity;
    return options;
  }

  Kind admit(int rank) {
    while (true) {
      const std::vector<int> victims(order.rbegin(), order.rend());
      const auto step = residency.next(rank, victims);
      if (step.kind == Kind::kMeasure) {
        residency.measured(0, fake.memory(0));
      } else if (step.kind == Kind::kSwapOut) {
        const auto before = fake.memory(0);
        REQUIRE(fake.swap_out(kFirstPid + step.rank));
        residency.swapped_out(step.rank, before, fake.memory(0));
        moves.push_back("out " + std::to_string(step.rank));
      } else if (step.kind == Kind::kSwapIn) {
        REQUIRE(fake.swap_in(kFirstPid + step.rank));
        residency.swapped_in(step.rank, fake.memory(0));
        moves.push_back("in " + std::to_string(step.rank));
      } else {
        return step.kind;
      }
    }
  }
  // The rank's turn, at whose end it holds that much and is the last to run again.
  void turn(int rank, std::uint64_t bytes) {
    order.erase(std::find(order.begin(), order.end(), rank));
    order.insert(order.begin(), rank);
    REQUIRE(admit(rank) == Kind::kRun);
    REQUIRE_FALSE(fake.is_out(kFirstPid + rank));
    residency.runs(rank);
    fake.hold(kFirstPid + rank, bytes);
    if (bytes > 0) residency.uses_device(rank);
    residency.rests(rank);
    std::rotate(order.begin(), order.begin() + 1, order.end());
  }
  int swaps_out() const {
    return static_cast<int>(std::count_if(moves.begin(), moves.end(), [](const auto& m) { return m[0] == 'o'; }));
  }
};

// Belady: with `places`, how often a rank has to leave if at each lack of room the one leaves that is needed latest.
int least_evictions(const std::vector<int>& turns, std::size_t places) {
  std::vector<int> here;
  int evictions = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (std::find(here.begin(), here.end(), turns[i]) != here.end()) continue;
    if (here.size() == places) {
      const auto next_use = [&](int rank) {
        return std::find(turns.begin() + static_cast<std::ptrdiff_t>(i), turns.end(), rank) - turns.begin();
      };
      here.erase(std::max_element(here.begin(), here.end(), [&](int a, int b) { return next_use(a) < next_use(b); }));
      ++evictions;
    }
    here.push_back(turns[i]);
  }
  return evictions;
}

}  // namespace

TEST_CASE("while the device holds everyone nobody is swapped") {
  Machine machine(4, 100);
  for (int step = 0; step < 3; ++step)
    for (int rank = 0; rank < 4; ++rank) machine.turn(rank, 20);
  REQUIRE(machine.moves.empty());
}

TEST_CASE("with room for two of five, a step costs as few swaps as if the future were known") {
  Machine machine(5, 100);
  std::vector<int> turns;
  for (int step = 0; step < 6; ++step)
    for (int rank = 0; rank < 5; ++rank) {
      machine.turn(rank, 40);
      turns.push_back(rank);
    }
  REQUIRE(machine.swaps_out() == least_evictions(turns, 2));
}

TEST_CASE("a rank that has allocated nothing yet is expected to need what its peer holds") {
  Machine machine(2, 100);
  machine.turn(0, 60);
  machine.turn(1, 60);
  REQUIRE(machine.moves == std::vector<std::string>{"out 0"});
}

TEST_CASE("what a rank came to hold in its last turn counts") {
  Machine machine(3, 100);
  for (int rank = 0; rank < 3; ++rank) machine.turn(rank, 20);
  machine.turn(0, 50);  // 90 in use
  machine.turn(1, 50);  // expected to need 30 more than it has, and 6; rank 0 runs latest
  REQUIRE(machine.moves == std::vector<std::string>{"out 0"});
  REQUIRE(machine.residency.bytes(0) == 50);
}

TEST_CASE("swapping always, one rank at a time is on the device") {
  Machine machine(2, 100, SwapMode::kAlways);
  for (int step = 0; step < 2; ++step)
    for (int rank = 0; rank < 2; ++rank) machine.turn(rank, 10);
  REQUIRE(machine.moves == std::vector<std::string>{"out 0", "out 1", "in 0", "out 0", "in 1"});
}

TEST_CASE("where nobody can tell how much memory is free, each change of rank swaps") {
  Machine machine(2, 0);
  machine.turn(0, 10);
  machine.turn(1, 10);
  machine.turn(1, 10);
  machine.turn(0, 10);
  REQUIRE(machine.moves == std::vector<std::string>{"out 0", "out 1", "in 0"});
}

TEST_CASE("a rank whose device work does not end stays, and the next one goes") {
  Machine machine(3, 100);
  machine.turn(0, 40);
  machine.turn(1, 40);
  machine.residency.is_busy(1);
  machine.turn(2, 40);
  REQUIRE(machine.moves == std::vector<std::string>{"out 0"});
}

TEST_CASE("a rank that does not fit back waits for processes that are ending, and never tries without room") {
  Machine machine(3, 100);
  machine.turn(0, 60);
  machine.turn(1, 60);  // swaps 0 out
  machine.residency.ended(1);
  machine.order = {0, 2};
  REQUIRE(machine.admit(0) == Kind::kWait);
  SECTION("its memory is given back") {
    machine.fake.hold(kFirstPid + 1, 0);
    machine.residency.gone(1);
    machine.residency.look_again(0);
    REQUIRE(machine.admit(0) == Kind::kRun);
    REQUIRE(machine.moves.back() == "in 0");
  }
  SECTION("somebody else's memory is not") {
    machine.residency.gone(1);
    machine.residency.look_again(0);
    REQUIRE(machine.admit(0) == Kind::kNoRoom);
    REQUIRE(machine.residency.describe_lack(0).find("rank 0") != std::string::npos);
  }
}

TEST_CASE("a job that never touches the device costs not even a measurement") {
  Machine machine(2, 100);
  const std::vector<int> nobody;
  for (const int rank : {0, 1, 0}) {
    REQUIRE(machine.residency.next(rank, nobody).kind == Kind::kRun);
    machine.residency.runs(rank);
    machine.residency.rests(rank);
  }
}
