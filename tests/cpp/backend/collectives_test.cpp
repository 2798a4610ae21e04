#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("a job of 4 ranks sums over the world, on 1, 2 and all slots") {
  const int slots = GENERATE(1, 2, 4);
  const auto job = run_job(4, slots, [](Rank& self) {
    for (std::int64_t step = 0; step < 10; ++step) {
      const auto sum = self.all_reduce({self.rank() + step, 10 * self.rank()});
      if (sum != std::vector<std::int64_t>{6 + 4 * step, 60}) throw std::runtime_error("wrong sum");
    }
  });
  INFO((job.result ? "" : job.result.error().message));
  REQUIRE(job.result.ok());
}
