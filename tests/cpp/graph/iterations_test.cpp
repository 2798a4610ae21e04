#include "graph/iterations.hpp"

#include "catch2.hpp"
#include "graph/jobs.hpp"
#include "graph/repetition.hpp"

using namespace prism;
using prism::test::Folder;
using prism::test::Job3D;
using prism::test::Writer;

namespace {

std::optional<Repetition> repetition(const std::string& text) {
  const std::vector<std::uint32_t> tokens(text.begin(), text.end());
  return heaviest_repetition(tokens, std::vector<std::int64_t>(tokens.size(), 1));
}

std::vector<std::uint32_t> find_iterations(const RankRecord& record) {
  return iteration_marks(record, find_periods(record));
}

Writer job_of_two() { return Writer(0, {{"world", {0, 1}}}); }

}  // namespace

TEST_CASE("the heaviest repetition of a sequence") {
  const auto found = [](const std::string& text) {
    const auto r = repetition(text);
    return r ? text.substr(r->begin, r->end - r->begin) + "/" + std::to_string(r->period) : "none";
  };
  REQUIRE(found("") == "none");
  REQUIRE(found("abc") == "none");
  REQUIRE(found("aa") == "aa/1");
  REQUIRE(found("xyabcabcabcz") == "abcabcabc/3");
  REQUIRE(found("xyabcabcabz") == "abcabcab/3");
  REQUIRE(found("aaabcabcabcd") == "abcabcabc/3");
  REQUIRE(found("ababababcab") == "abababab/2");
  REQUIRE(found("rsrsrsArsrsrsA") == "rsrsrsArsrsrsA/7");  // micro-batches within iterations
}

TEST_CASE("the heaviest repetition is that of an exhaustive search, on every sequence of 11 over 2 letters") {
  for (unsigned bits = 0; bits < 1u << 11; ++bits) {
    std::string text;
    for (int i = 0; i < 11; ++i) text += bits >> i & 1 ? 'b' : 'a';
    std::size_t longest = 0, period = 0;
    for (std::size_t p = 1; p <= 5; ++p)
      for (std::size_t begin = 0; begin < text.size(); ++begin) {
        std::size_t end = begin + p;
        while (end < text.size() && text[end] == text[end - p]) ++end;
        if (end - begin >= 2 * p && end <= text.size() && end - begin > longest) longest = end - begin, period = p;
      }
    const auto found = repetition(text);
    INFO(text);
    REQUIRE(found);
    REQUIRE(found->end - found->begin == longest);
    REQUIRE(found->period == period);
  }
}

TEST_CASE("iterations are found behind set-up that repeats itself and before a validation") {
  auto w = job_of_two();
  for (int layer = 0; layer < 40; ++layer) w.wait(w.collective(Op::kBroadcast, 0, 256, 0));  // parameters
  std::vector<std::uint32_t> begins;
  for (int i = 0; i < 5; ++i) {
    begins.push_back(static_cast<std::uint32_t>(w.record.nodes.size()));
    w.compute("forward and backward");
    w.all_reduce(0, 1024);
    w.compute("backward");
    w.all_reduce(0, 2048);
    w.compute("update");
  }
  // Between two iterations all computation belongs to the later one: nothing communicates between them.
  for (std::size_t i = 1; i < begins.size(); ++i) --begins[i];
  w.wait(w.collective(Op::kAllGather, 0, 8));
  w.wait(w.collective(Op::kBarrier, 0, 0));
  REQUIRE(find_iterations(w.record) == begins);
}

TEST_CASE("two gradient buckets of one size are one iteration, told by their waits") {
  auto w = job_of_two();
  for (int i = 0; i < 4; ++i) {
    w.compute("backward");
    const auto first = w.collective(Op::kAllReduce, 0, 1024);
    const auto second = w.collective(Op::kAllReduce, 0, 1024);
    w.wait(first);
    w.wait(second);
  }
  REQUIRE(find_iterations(w.record).size() == 4);
}

TEST_CASE("expert traffic of changing size still has iterations") {
  auto w = job_of_two();
  for (int i = 0; i < 6; ++i) {
    w.compute();
    w.wait(w.collective(Op::kAllToAllSingle, 0, 100 + i * i));
    w.compute();
    w.all_reduce(0, 1024);
  }
  REQUIRE(find_iterations(w.record).size() == 6);
}

TEST_CASE("iterations go on behind a checkpoint and an evaluation") {
  auto w = job_of_two();
  std::vector<std::uint32_t> begins;
  for (const int iterations : {2, 5, 1}) {
    for (int i = 0; i < iterations; ++i) {
      begins.push_back(static_cast<std::uint32_t>(w.record.nodes.size()));
      w.compute("forward");
      w.all_reduce(0, 64);
      w.compute("backward");
      w.all_reduce(0, 1024);
      w.compute("optimizer");
    }
    w.wait(w.collective(Op::kBarrier, 0, 0));  // a checkpoint
    for (int batch = 0; batch < 2; ++batch) w.all_reduce(0, 64);
  }
  REQUIRE(find_iterations(w.record) == begins);
}

TEST_CASE("an iteration ends with the optimizer's step") {
  auto w = job_of_two();
  std::vector<std::uint32_t> begins;
  for (int i = 0; i < 3; ++i) {
    begins.push_back(static_cast<std::uint32_t>(w.record.nodes.size()));
    w.compute("forward and backward");
    w.all_reduce(0, 1024);
    w.compute();
    w.compute("optimizer");
  }
  REQUIRE(find_iterations(w.record) == begins);
}

TEST_CASE("micro-batches of a single iteration are no iterations where its optimizer is seen") {
  const bool seen = GENERATE(true, false);
  auto w = job_of_two();
  for (int microbatch = 0; microbatch < 8; ++microbatch) {
    w.compute();
    w.all_reduce(0, 64);
  }
  w.all_reduce(0, 1024);
  w.compute(seen ? "optimizer" : "");
  REQUIRE(find_iterations(w.record).size() == (seen ? 0 : 8));
}

TEST_CASE("layers that all do the same are told from iterations by the optimizer's steps") {
  // Tensor parallelism: one all_reduce of one size for each layer, forward and backward.
  auto w = job_of_two();
  std::vector<std::uint32_t> begins;
  for (int step = 0; step < 5; ++step) {
    begins.push_back(static_cast<std::uint32_t>(w.record.nodes.size()));
    for (int layer = 0; layer < 10; ++layer) {
      w.compute("a layer");
      w.wait(w.collective(Op::kAllReduce, 0, 1024));
    }
    w.compute(kOptimizerSpan);
  }
  REQUIRE(find_iterations(w.record) == begins);
}

TEST_CASE("steps that a gradient scaler leaves out do not hide iterations") {
  auto w = job_of_two();
  for (int i = 0; i < 6; ++i) {
    w.compute();
    w.all_reduce(0, 1024);
    if (i >= 2) w.compute("optimizer");
  }
  REQUIRE(find_iterations(w.record).size() == 6);
}

TEST_CASE("a run of one iteration has none to be found") {
  auto w = job_of_two();
  w.all_reduce(0, 1);
  w.all_reduce(0, 2);
  REQUIRE(find_iterations(w.record).empty());
  REQUIRE(find_iterations(job_of_two().record).empty());
}

TEST_CASE("ranks agree on the number of iterations") {
  std::vector<Periods> ranks(4);
  ranks[0] = {{0, 10, 20}, true};         // sees three iterations
  ranks[1] = {{0, 1, 2, 3, 4, 5}, true};  // all-reduces twice an iteration
  ranks[2] = {{0, 5, 10, 15}, true};      // its set-up looks like an iteration
  ranks[3] = {{}, false};                 // does not communicate
  agree_on_iterations(ranks);
  REQUIRE(ranks[0].first_comm == std::vector<std::uint32_t>{0, 10, 20});
  REQUIRE(ranks[1].first_comm == std::vector<std::uint32_t>{0, 2, 4});
  REQUIRE(ranks[2].first_comm == std::vector<std::uint32_t>{5, 10, 15});
  ranks.push_back({{}, true});
  agree_on_iterations(ranks);
  for (const auto& rank : ranks) REQUIRE(rank.first_comm.empty());
}

TEST_CASE("merging fragments gives every rank of a pipeline the same iterations") {
  const Job3D job{.tp = 2, .pp = 3, .dp = 2, .iterations = 4, .microbatches = 3};
  const Folder folder;
  std::vector<std::string> paths;
  for (int rank = job.world() - 1; rank >= 0; --rank) {  // the order of the paths does not matter
    auto record = job.record(rank);
    record.marks.clear();
    GraphBuilder builder({.world_size = job.world()});
    REQUIRE(builder.add(record));
    paths.push_back(folder.path(std::to_string(rank)));
    REQUIRE(write_trace(*builder.finish(), paths.back()));
  }
  const auto merged = merge_fragments(paths, {.world_size = job.world(), .progress_model = "gloo"});
  REQUIRE(merged);
  REQUIRE(merged->class_count() == 3);
  REQUIRE(merged->class_of(0) == 0);
  REQUIRE(validate(*merged));
  for (int cls = 0; cls < 3; ++cls) REQUIRE(merged->class_view(cls).mark_node.size() == 4);

  auto twice = paths;
  twice.push_back(paths[0]);
  REQUIRE(merge_fragments(twice, {.world_size = job.world()}).error().message ==
          "rank 11 is in " + paths[0] + " and in " + paths[0]);
  REQUIRE(merge_fragments(paths, {.world_size = 5}).error().code == ErrorCode::kInvalidInput);
}
