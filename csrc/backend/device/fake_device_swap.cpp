#include "backend/device/fake_device_swap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/deadline.hpp"

namespace prism {

namespace {

bool is_alive(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto close = text.rfind(')');  // PID (NAME) STATE; the name may hold anything
  return close != std::string::npos && close + 2 < text.size() && text[close + 2] != 'Z' && text[close + 2] != 'X';
}

}  // namespace

Result<std::shared_ptr<FakeDeviceSwap>> FakeDeviceSwap::from_file(const std::string& path) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  Options options;
  try {
    options.not_viable = json.value("not_viable", "");
    options.devices = json.value("devices", 1);
    options.capacity_bytes = json.value("capacity_bytes", std::uint64_t{0});
    options.swap_s = json.value("swap_s", 0.0);
    options.folder = json.value("folder", "");
    options.log = json.value("log", "");
    for (const auto& event : json.value("events", nlohmann::json::array()))
      options.events.push_back(
          {event.value("call", ""), event.value("nth", 1), event.value("error", ""), event.value("busy", false)});
  } catch (const nlohmann::json::exception& wrong) {
    return Error{ErrorCode::kInvalidInput, fmt::format("fake device '{}': {}", path, wrong.what())};
  }
  return std::make_shared<FakeDeviceSwap>(std::move(options));
}

void FakeDeviceSwap::hold(int pid, std::uint64_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  held_[pid] = {device, bytes};
}

bool FakeDeviceSwap::is_out(int pid) {
  const std::lock_guard lock(mutex_);
  return out_.count(pid) != 0;
}

void FakeDeviceSwap::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  released_cv_.notify_all();
}

Result<void> FakeDeviceSwap::viable() {
  if (options_.not_viable.empty()) return {};
  return Error{ErrorCode::kIo, options_.not_viable};
}

std::optional<DeviceMemory> FakeDeviceSwap::memory(int device) {
  const std::lock_guard lock(mutex_);
  if (options_.capacity_bytes == 0) return std::nullopt;
  read_folder();
  const auto taken = std::min(used(device), options_.capacity_bytes);
  return DeviceMemory{options_.capacity_bytes, options_.capacity_bytes - taken};
}

// A process that has ended holds nothing.
void FakeDeviceSwap::read_folder() {
  if (options_.folder.empty()) return;
  held_.clear();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    const int pid = std::atoi(name.c_str());
    Held held;
    if (std::ifstream(entry.path()) >> held.device >> held.bytes && is_alive(pid)) held_[pid] = held;
  }
}

std::uint64_t FakeDeviceSwap::used(int device) const {
  std::uint64_t sum = 0;
  for (const auto& [pid, held] : held_)
    if (held.device == device && out_.count(pid) == 0) sum += held.bytes;
  return sum;
}

Result<void> FakeDeviceSwap::swap(int pid, const char* call, bool in) {
  std::unique_lock lock(mutex_);
  const std::int64_t begin = now_ns();
  if (!options_.log.empty())
    std::ofstream(options_.log, std::ios::app)
        << fmt::format("{{\"call\": \"{}\", \"pid\": {}, \"begin_ns\": {}}}\n", call, pid, begin);
  auto done = happens(lock, pid, call, in);
  if (!options_.log.empty())
    std::ofstream(options_.log, std::ios::app)
        << fmt::format("{{\"call\": \"{}\", \"pid\": {}, \"begin_ns\": {}, \"end_ns\": {}, \"error\": \"{}\"}}\n", call,
                       pid, begin, now_ns(), done ? "" : done.error().message);
  return done;
}

Result<void> FakeDeviceSwap::happens(std::unique_lock<std::mutex>& lock, int pid, const std::string& call, bool in) {
  constexpr auto kLongestHang = std::chrono::minutes(5);
  const int nth = ++calls_[call];
  if (options_.swap_s > 0)
    released_cv_.wait_for(lock, std::chrono::duration<double>(options_.swap_s), [this] { return released_; });
  for (const Event& event : options_.events) {
    if (event.call != call || event.nth != nth) continue;
    if (!event.error.empty()) return Error{event.busy ? ErrorCode::kTimeout : ErrorCode::kIo, event.error};
    released_cv_.wait_for(lock, kLongestHang, [this] { return released_; });
  }
  read_folder();
  if (!options_.folder.empty() && !is_alive(pid))
    return Error{ErrorCode::kIo, fmt::format("{}: no process {}", call, pid)};
  if (in != (out_.count(pid) != 0))
    return Error{ErrorCode::kIo, fmt::format("{}: process {} is {}", call, pid, in ? "running" : "out already")};
  if (!in) {
    out_.insert(pid);
    return {};
  }
  const Held held = held_[pid];
  if (options_.capacity_bytes != 0 && used(held.device) + held.bytes > options_.capacity_bytes)
    return Error{ErrorCode::kIo, fmt::format("swap_in of process {}: out of memory", pid)};
  out_.erase(pid);
  return {};
}

}  // namespace prism
