// Who runs next.
#include "backend/coordinator/scheduler.hpp"

#include <vector>

#include "catch2.hpp"

using namespace prism;

namespace {

std::vector<int> order_of(Scheduler& scheduler) {
  std::vector<int> order;
  for (int rank; (rank = scheduler.grant(0)) >= 0;) {
    order.push_back(rank);
    scheduler.release(rank, SlotState::kBlocked);
  }
  return order;
}

}  // namespace

TEST_CASE("by need, those run first for whom others wait, then those with all they wait for, then the rest") {
  Scheduler scheduler(5, 1);
  scheduler.make_ready(0, false);
  scheduler.make_ready(1, true);
  scheduler.make_ready(2, true);
  scheduler.make_ready(3, false);
  scheduler.urge(3, +1);
  REQUIRE(order_of(scheduler) == std::vector{3, 1, 2, 0});
  REQUIRE(scheduler.switches() == 3);
}

TEST_CASE("round-robin goes on from the rank that ran last, whatever ranks wait for") {
  Scheduler scheduler(5, 1, Schedule::kRoundRobin);
  for (const int rank : {0, 1, 3}) scheduler.make_ready(rank, rank != 1);
  scheduler.urge(3, +1);
  REQUIRE(scheduler.grant(0) == 0);
  scheduler.release(0, SlotState::kBlocked);
  REQUIRE(scheduler.grant(0) == 1);
  scheduler.make_ready(0, true);
  scheduler.release(1, SlotState::kBlocked);
  REQUIRE(order_of(scheduler) == std::vector{3, 0});
}

TEST_CASE("ranks bound to devices get slots of theirs only, in the same order on each") {
  const std::vector<int> device_of_rank{0, 1, 0, 1};
  Scheduler scheduler(4, 2, Schedule::kByNeed, device_of_rank);
  for (const int rank : {0, 2, 3}) scheduler.make_ready(rank, true);
  REQUIRE(scheduler.grant(0) == 0);
  REQUIRE(scheduler.grant(0) == 3);
  REQUIRE(scheduler.grant(0) == -1);  // rank 2's device is taken
  scheduler.make_ready(1, true);
  scheduler.release(0, SlotState::kBlocked);
  REQUIRE(scheduler.has_free_slot(2));
  REQUIRE_FALSE(scheduler.has_free_slot(1));
  REQUIRE(scheduler.grant(0) == 2);
  REQUIRE(scheduler.waiting() == 1);
}

TEST_CASE("the last to run of ranks that wait is the highest, after all that are ready") {
  Scheduler scheduler(5, 1);
  for (const int rank : {0, 1, 2, 3, 4}) scheduler.make_ready(rank, true);
  REQUIRE(scheduler.grant(0) == 0);
  scheduler.release(0, SlotState::kBlocked);
  REQUIRE(scheduler.grant(0) == 1);
  scheduler.release(1, SlotState::kLent);
  REQUIRE(scheduler.grant(0) == 2);
  std::vector<int> ranks{0, 1, 2, 3, 4};
  scheduler.latest_first(ranks);
  REQUIRE(ranks == std::vector{1, 0, 4, 3, 2});
}
