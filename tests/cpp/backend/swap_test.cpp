// A capture on one slot whose device has room for two ranks: ranks are processes, the device is the fake. A rank's
// "device memory" is a file, and it checks in its turn that it is on the device and that the device is not overfull.
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "backend/device/fake_device_swap.hpp"
#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

constexpr int kRanks = 4, kSteps = 3;
constexpr int kCapacity = 100, kBytes = 40;

struct Device {
  std::string folder = std::filesystem::temp_directory_path() / ("prism-device-" + fresh_address());
  FakeDeviceSwap::Options options;
  std::shared_ptr<FakeDeviceSwap> fake;

  explicit Device(std::vector<FakeDeviceSwap::Event> events = {}) {
    std::filesystem::create_directory(folder);
    options.capacity_bytes = kCapacity;
    options.folder = folder;
    options.log = folder + "/log";
    options.events = std::move(events);
    fake = std::make_shared<FakeDeviceSwap>(options);
  }
  ~Device() { std::filesystem::remove_all(folder); }

  std::function<void(Coordinator::Options&)> adjust(SwapMode mode = SwapMode::kAuto) {
    return [this, mode](Coordinator::Options& options) {
      options.device_of_rank.assign(static_cast<std::size_t>(options.world_size), 0);
      options.swap_mode = mode;
      options.device_swap = fake;
    };
  }
  bool has_moves() const { return std::filesystem::exists(options.log); }
  // In a rank: takes memory of the device, which it then has state on.
  void allocate(Rank& self, int bytes) const {
    std::ofstream(folder + "/" + std::to_string(getpid())) << "0 " << bytes;
    self.client().note_device_use();
  }
  // In a rank: whether its state is, or is on its way to be, on the host.
  bool is_out() const {
    bool out = false;
    std::ifstream log(folder + "/log");
    for (std::string line; std::getline(log, line);) {
      const auto move = nlohmann::json::parse(line, nullptr, false);
      if (move.is_discarded() || move["pid"] != getpid()) continue;
      const bool refused = move.value("error", "") != "";
      out = (move["call"] == "swap_out" && !refused) || !move.contains("end_ns");
    }
    return out;
  }
  void expect_on_device() const { expect(!is_out(), "a rank computes while its device state is on the host"); }
  // In a rank: a call to the driver, which holds its caller while the state is on the host.
  void call_driver() const {
    std::mutex mutex;
    std::condition_variable changed;
    bool back = false;
    std::thread driver([&] {
      while (is_out()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      back = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return back; });
    lock.unlock();
    driver.join();
  }
};

void train(Rank& self, const Device& device, int bytes) {
  const std::int64_t sum = kRanks * (kRanks - 1) / 2;
  self.barrier();  // all have been given their first slot
  device.allocate(self, bytes);
  for (int step = 0; step < kSteps; ++step) {
    device.expect_on_device();
    expect(self.all_reduce({self.rank() + step})[0] == sum + kRanks * step, "the sum");
    device.expect_on_device();
  }
}

JobResult train_on(Device& device, SwapMode mode = SwapMode::kAuto, int bytes = kBytes) {
  return run_processes(
      kRanks, 1, [&](Rank& self) { train(self, device, bytes); }, device.adjust(mode));
}

std::int64_t swaps_of(const JobResult& job) { return nlohmann::json::parse(job.statistics)["device_swaps"]; }

}  // namespace

TEST_CASE("ranks that a device cannot hold together take turns on it, and get the same sums", "[processes]") {
  Device device;
  const auto job = train_on(device);
  require_ok(job);
  REQUIRE(swaps_of(job) >= kRanks - 2);
}

TEST_CASE("ranks that a device holds together are not swapped", "[processes]") {
  Device device;
  const auto job = train_on(device, SwapMode::kAuto, 20);
  require_ok(job);
  REQUIRE(swaps_of(job) == 0);
}

TEST_CASE("swapping always leaves the device to one rank at a time", "[processes]") {
  Device device;
  const auto job = train_on(device, SwapMode::kAlways, 20);
  require_ok(job);
  REQUIRE(swaps_of(job) >= kSteps * (kRanks - 1));
}

TEST_CASE("a device whose work does not end is left alone, and another rank goes", "[processes]") {
  Device device({{"swap_out", 1, "its work does not end", true}});
  require_ok(train_on(device));
}

TEST_CASE("a swap that fails ends the run with rank and reason", "[processes]") {
  const std::string call = GENERATE("swap_out", "swap_in");
  Device device({{call, 1, "CUDA_ERROR_NOT_SUPPORTED"}});
  const auto error = error_of(train_on(device));
  REQUIRE(error.code == ErrorCode::kIo);
  REQUIRE_THAT(error.message, ContainsSubstring("rank ") && ContainsSubstring("CUDA_ERROR_NOT_SUPPORTED"));
}

TEST_CASE("a rank that dies while its state is on the host is the run's error, and not the swap", "[processes]") {
  Device device;
  const auto job = run_processes(
      2, 1,
      [&](Rank& self) {
        device.allocate(self, 60);
        const std::string pid = std::to_string(getpid());
        static_cast<void>(self.client().store_set(self.rank() == 0 ? "first" : "second", {pid.begin(), pid.end()}));
        if (self.rank() == 1) {  // runs, so that rank 0 has been swapped out
          const auto first = self.client().store_get("first", Deadline::after(std::chrono::seconds(30))).value();
          kill(std::stoi(std::string(first.begin(), first.end())), SIGKILL);
        }
        self.barrier();
      },
      device.adjust());
  REQUIRE(error_of(job).code == ErrorCode::kPeerFailed);
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("rank 0 died"));
}

TEST_CASE("a rank's death ends the run although its swap hangs in the driver", "[processes]") {
  Device device({{"swap_out", 1, ""}});
  const auto job = run_processes(
      2, 1, [&](Rank& self) { train(self, device, 60); }, device.adjust(),
      [&](const std::vector<int>& pids) {
        const Deadline deadline = Deadline::after(std::chrono::seconds(30));
        while (!device.has_moves() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (const int pid : pids) kill(pid, SIGKILL);
      });
  REQUIRE(error_of(job).code == ErrorCode::kPeerFailed);
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("died"));
}

TEST_CASE("a rank that wakes from a sleep of its own and needs its device gets it back", "[processes]") {
  Device device;
  const auto job = run_processes(
      2, 1,
      [&](Rank& self) {
        device.allocate(self, 60);
        if (self.rank() == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // loads data; rank 1 has the device meanwhile
          device.call_driver();
        }
        self.barrier();
      },
      device.adjust());
  require_ok(job);
  REQUIRE(swaps_of(job) >= 1);
}
