// The store that ranks meet in, as torch.distributed's programs use it.
#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

RankClient::Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }
Deadline later() { return Deadline::after(std::chrono::hours(1)); }

void run_alone(const std::function<void(RankClient&)>& program) {
  const auto job = run_job(1, 1, [&](Rank& self) { program(self.client()); });
  require_ok(job);
}

}  // namespace

TEST_CASE("values are bytes of any kind and size, up to the stated limit") {
  run_alone([](RankClient& store) {
    const std::string key("k\0ey", 4);
    expect(store.store_set(key, {0, 255, 0}).ok(), "set");
    expect(store.store_get(key, later()).value() == RankClient::Bytes{0, 255, 0}, "get");
    RankClient::Bytes large(8u << 20);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::uint8_t>(i * 7);
    expect(store.store_set("large", large).ok(), "set");
    expect(store.store_get("large", later()).value() == large, "get");
    expect(store.store_set("empty", {}).ok() && store.store_get("empty", later()).value().empty(), "empty");
    const auto refused = store.store_set("huge", RankClient::Bytes((32u << 20) + 1));
    expect(!refused && refused.error().message.find("accepted: at most 33554432") != std::string::npos, "limit");
  });
}

TEST_CASE("counters are decimal text") {
  run_alone([](RankClient& store) {
    expect(store.store_add("n", 5).value() == 5 && store.store_add("n", -7).value() == -2, "add");
    expect(store.store_get("n", later()).value() == bytes("-2"), "text");
    expect(store.store_set("text", bytes("7 dwarfs")).ok(), "set");
    expect(store.store_add("text", 1).error().code == ErrorCode::kInvalidInput, "no number");
  });
}

TEST_CASE("compare_set sets an absent key only for an empty expectation") {
  run_alone([](RankClient& store) {
    expect(store.store_compare_set("k", bytes("a"), bytes("b")).value() == bytes("a"), "absent, something expected");
    expect(!store.store_check({"k"}).value(), "still absent");
    expect(store.store_compare_set("k", {}, bytes("b")).value() == bytes("b"), "absent, nothing expected");
    expect(store.store_compare_set("k", bytes("x"), bytes("c")).value() == bytes("b"), "another value");
    expect(store.store_compare_set("k", bytes("b"), bytes("c")).value() == bytes("c"), "the value");
  });
}

TEST_CASE("append, check, delete, counting and listing of keys") {
  run_alone([](RankClient& store) {
    expect(store.store_append("a/1", bytes("x")).ok() && store.store_append("a/1", bytes("yz")).ok(), "append");
    expect(store.store_get("a/1", later()).value() == bytes("xyz"), "get");
    expect(store.store_set("a/2", {}).ok() && store.store_set("b", {}).ok(), "set");
    expect(store.store_num_keys().value() == 3, "number");
    expect(store.store_list_keys("a/").value() == std::vector<std::string>{"a/1", "a/2"}, "list");
    expect(store.store_check({"a/1", "b"}).value() && !store.store_check({"a/1", "c"}).value(), "check");
    expect(store.store_delete("b").value() && !store.store_delete("b").value(), "delete");
    expect(store.store_num_keys().value() == 2, "number");
  });
}

TEST_CASE("queues are first in, first out, and a blocking pop waits for an item") {
  run_alone([](RankClient& store) {
    expect(store.store_queue_push("q", bytes("1")).ok() && store.store_queue_push("q", bytes("2")).ok(), "push");
    expect(store.store_queue_length("q").value() == 2, "length");
    expect(store.store_queue_pop("q", false, later()).value() == bytes("1"), "pop");
    expect(store.store_queue_pop("q", true, later()).value() == bytes("2"), "pop");
    expect(!store.store_queue_pop("q", false, later()).ok(), "pop of nothing");
  });
  const auto job = run_job(2, 1, [](Rank& self) {
    if (self.rank() == 0)
      expect(self.client().store_queue_pop("q", true, later()).value() == bytes("item"), "pop");
    else
      expect(self.client().store_queue_push("q", bytes("item")).ok(), "push");
  });
  REQUIRE(job.result.ok());
}

TEST_CASE("blocking calls give the only slot back, whoever comes first") {
  const int first = GENERATE(0, 1);
  const auto job = run_job(2, 1, [&](Rank& self) {
    RankClient& store = self.client();
    if (self.rank() == first) {
      expect(store.store_wait({"x", "y"}, later()).ok(), "wait");
      expect(store.store_get("z", later()).value() == bytes("3"), "get");
    } else {
      expect(store.store_set("x", {}).ok() && store.store_add("y", 1).ok() && store.store_set("z", bytes("3")).ok(),
             "set");
    }
  });
  require_ok(job);
}

TEST_CASE("a wait for keys ends at its deadline with the key's name, and leaves nothing behind") {
  run_alone([](RankClient& store) {
    const auto waited = store.store_wait({"never"}, Deadline::after(std::chrono::milliseconds(30)));
    expect(!waited && waited.error().code == ErrorCode::kTimeout, "a timeout");
    expect(waited.error().message.find("'never'") != std::string::npos, waited.error().message);
    expect(store.store_set("never", {}).ok() && store.store_wait({"never"}, later()).ok(), "goes on");
  });
}
