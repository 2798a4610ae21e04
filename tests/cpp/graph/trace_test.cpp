#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "catch2.hpp"
#include "graph/diff.hpp"
#include "graph/impl.hpp"
#include "graph/jobs.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("a trace comes back from its file as it was") {
  const Folder folder;
  const Job3D job;
  const auto graph = job.build();
  const auto again = open_trace(written(folder, job), Check::kAll);
  REQUIRE(again);
  REQUIRE(again->timed());
  REQUIRE(again->progress_model() == "conservative");
  REQUIRE(again->metadata_json() == graph->metadata_json());
  REQUIRE(again->group_count() == graph->group_count());
  const auto found = first_difference(*graph, *again, true);
  REQUIRE(found);
  REQUIRE_FALSE(found->has_value());
  REQUIRE(write_trace(*again, folder.path("copy.prism")));
  REQUIRE(slurp(folder.path("copy.prism")) == slurp(folder.path("job.prism")));
}

TEST_CASE("structure is stored once a class, whatever the number of replicas") {
  const Folder folder;
  const auto stored = [&](int dp) {
    const auto graph = open_trace(written(folder, {.tp = 1, .pp = 3, .dp = dp}));
    return std::pair(graph->impl().columns.node_kind.size(), graph->impl().columns.start_ns.size());
  };
  const auto one = stored(1), many = stored(8);
  REQUIRE(many.first == one.first);
  REQUIRE(many.second == 8 * one.second);
}

TEST_CASE("a job of nobody and unrecorded ranks are traces, too") {
  const Folder folder;
  GraphBuilder none({.world_size = 3});
  REQUIRE(write_trace(*none.finish(), folder.path("none.prism")));
  const auto graph = open_trace(folder.path("none.prism"), Check::kAll);
  REQUIRE(graph);
  REQUIRE(graph->class_of(2) == -1);
  REQUIRE(graph->timing(2).start_ns.empty());
  REQUIRE(graph->check_rank(2));
}

TEST_CASE("threads that meet a rank for the first time together see the same") {
  const Folder folder;
  const Job3D job{.tp = 2, .pp = 4, .dp = 2, .iterations = 50};
  const auto graph = open_trace(written(folder, job));
  std::vector<std::size_t> seen(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < seen.size(); ++t)
    threads.emplace_back([&, t] {
      for (int rank = 0; rank < job.world(); ++rank)
        seen[t] += graph->timing(rank).start_ns.size() + graph->class_view(graph->class_of(rank)).node_kind.size();
    });
  for (auto& thread : threads) thread.join();
  std::size_t expected = 0;
  for (int rank = 0; rank < job.world(); ++rank) expected += 2 * job.record(rank).nodes.size();
  for (const auto count : seen) REQUIRE(count == expected);
}

TEST_CASE("what cannot be opened or written is an error of the system") {
  const Folder folder;
  const auto graph = Job3D().build();
  REQUIRE(open_trace(folder.path("absent")).error().code == ErrorCode::kIo);
  REQUIRE(open_trace("/").error().code == ErrorCode::kInvalidInput);
  REQUIRE(write_trace(*graph, folder.path("absent/job.prism")).error().code == ErrorCode::kIo);
  REQUIRE(write_trace(*graph, "/dev/null").error().code == ErrorCode::kInvalidInput);
  REQUIRE(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("what a killed process left half written is in nobody's way") {
  const Folder folder;
  for (int serial = 0; serial < 1000; ++serial)
    spit(folder.path("job.prism.partial-" + std::to_string(::getpid()) + "-" + std::to_string(serial)), "half");
  REQUIRE(open_trace(written(folder), Check::kAll));
}

TEST_CASE("names that are not UTF-8 and metadata that is not an object are refused when written") {
  const Folder folder;
  const auto written_as = [&](GraphBuilder::Options options, std::string lane) {
    options.world_size = 1;
    GraphBuilder builder(std::move(options));
    RankRecord record;
    record.rank = 0;
    record.lanes = {std::move(lane)};
    REQUIRE(builder.add(record));
    return write_trace(*builder.finish(), folder.path("bad.prism"));
  };
  REQUIRE(written_as({}, "main"));
  std::filesystem::remove(folder.path("bad.prism"));
  REQUIRE(written_as({}, "\xff").error().code == ErrorCode::kInvalidInput);
  REQUIRE(written_as({.metadata_json = "[1]"}, "main").error().code == ErrorCode::kInvalidInput);
  REQUIRE(written_as({.metadata_json = "{"}, "main").error().code == ErrorCode::kInvalidInput);
  REQUIRE(folder.files().empty());
}

TEST_CASE("a full disk leaves the old trace and nothing else") {
  const Folder folder;
  const auto mounted = folder.path("small");
  std::filesystem::create_directory(mounted);
  if (::geteuid() != 0 || ::mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=256k") != 0) {
    WARN("skipped: mounting a small file system needs root");
    return;
  }
  const auto path = mounted + "/job.prism";
  const auto small = Job3D{.tp = 1, .pp = 2, .dp = 1}.build(), large = Job3D{.iterations = 500}.build();
  const bool first = write_trace(*small, path).ok();
  const auto failed = write_trace(*large, path);
  const auto old = open_trace(path, Check::kAll);
  const auto files = std::distance(std::filesystem::directory_iterator(mounted), {});
  REQUIRE(::umount2(mounted.c_str(), MNT_DETACH) == 0);
  REQUIRE(first);
  REQUIRE_FALSE(failed);
  REQUIRE(failed.error().code == ErrorCode::kIo);
  REQUIRE(failed.error().message.find("No space left") != std::string::npos);
  REQUIRE(old);
  REQUIRE(files == 1);
}
