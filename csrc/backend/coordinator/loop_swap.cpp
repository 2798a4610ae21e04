// Device state: whoever has been given a slot is told so when its state is on the device. What has to be moved for that
// is the residency's to say; the moving happens on a thread per device.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "core/log.hpp"

namespace prism {
namespace {

using Kind = Residency::Step::Kind;

constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr std::int64_t kLongestWait = 30'000'000'000;  // ns, for the memory of processes that end
constexpr std::int64_t kLongestLack = 5'000'000'000;   // ns, of room where nobody will make any: it may have just gone
constexpr auto kLastCall = std::chrono::seconds(1);    // for a swap that is under way when the run ends
constexpr std::uint64_t kSpareHostBytes = 1ull << 30;

}  // namespace

Result<void> Coordinator::Impl::check_devices() const {
  const auto& devices = options_.device_of_rank;
  if (!devices.empty() && hosts_.size() > 1)
    return Error{ErrorCode::kInvalidInput, "devices on several hosts; accepted: devices of one host, or several hosts"};
  if (!devices.empty() && static_cast<int>(devices.size()) != options_.world_size)
    return Error{ErrorCode::kInvalidInput, fmt::format("devices of {} ranks are given; accepted: of all {} or of none",
                                                       devices.size(), options_.world_size)};
  for (const int device : devices)
    if (device < 0 || device >= options_.slots)
      return Error{
          ErrorCode::kInvalidInput,
          fmt::format("a rank is bound to device {}; accepted with {} slots: below that", device, options_.slots)};
  return {};
}

void Coordinator::Impl::start_swapping() {
  if (options_.swap_mode == SwapMode::kNever || !options_.device_swap || options_.device_of_rank.empty()) return;
  const int devices = *std::max_element(options_.device_of_rank.begin(), options_.device_of_rank.end()) + 1;
  residency_.emplace(options_.swap_mode, options_.device_of_rank, devices);
  for (int device = 0; device < devices; ++device) {
    admissions_.push_back(std::make_unique<Admissions>(io_, options_.device_swap, device));
    residency_->measured(device, options_.device_swap->memory(device));  // before any rank has come
  }
}

void Coordinator::Impl::stop_swapping() {
  const Deadline deadline = Deadline::after(kLastCall);
  for (const auto& device : admissions_) device->thread.stop(deadline);
}

bool Coordinator::Impl::is_swapping() const {
  return std::any_of(admissions_.begin(), admissions_.end(), [](const auto& device) {
    return !device->queue.empty() && (device->waits_since_ns == 0 || now_ns() - device->waits_since_ns < kLongestWait);
  });
}

bool Coordinator::Impl::process_ended(int rank) {
  auto& process = at(rank).process;
  return process ? process->has_ended() : at(rank).finished;
}

void Coordinator::Impl::admit_waiting_from_loop() {
  for (std::size_t device = 0; device < admissions_.size(); ++device)
    if (!admissions_[device]->queue.empty()) admit_from_loop(static_cast<int>(device));
}

// Of processes that end, the memory goes a moment after their last message.
void Coordinator::Impl::look_for_room_from_loop(int index) {
  const std::int64_t since = admissions_[static_cast<std::size_t>(index)]->waits_since_ns;
  for (int rank = 0; rank < options_.world_size; ++rank)
    if (residency_->device_of(rank) == index && residency_->is_ending(rank) &&
        (process_ended(rank) || now_ns() - since > kLongestWait))
      residency_->gone(rank);
  residency_->look_again(index);
  admit_from_loop(index);
}

void Coordinator::Impl::admit_from_loop(int index) {
  Admissions& device = *admissions_[static_cast<std::size_t>(index)];
  while (!device.busy && !device.queue.empty() && !stopping_) {
    const int rank = device.queue.front();
    std::vector<int> victims;
    for (int other = 0; other < options_.world_size; ++other)
      if (residency_->device_of(other) == index && residency_->on_device(other) && !at(other).finished &&
          !at(other).died && scheduler_.state(other) != SlotState::kRunning)
        victims.push_back(other);
    scheduler_.latest_first(victims);
    const auto step =
        at(rank).finished || at(rank).died ? Residency::Step{Kind::kRun, rank} : residency_->next(rank, victims);
    const bool waits = step.kind == Kind::kWait || step.kind == Kind::kNoRoom;
    device.waits_since_ns = !waits ? 0 : device.waits_since_ns == 0 ? now_ns() : device.waits_since_ns;
    switch (step.kind) {
      case Kind::kRun:
        device.queue.pop_front();
        at(rank).admitting = false;
        if (at(rank).finished || at(rank).died) continue;
        residency_->runs(rank);
        scheduler_.restart_tenure(rank, now_ns());
        send_grant(rank);
        continue;
      case Kind::kNoRoom:
        if (now_ns() - device.waits_since_ns > kLongestLack)
          return fail_from_loop({ErrorCode::kIo, "device swap: " + residency_->describe_lack(rank)});
        [[fallthrough]];
      case Kind::kWait:
        device.retry.expires_after(kLookAgain);
        device.retry.async_wait([this, index](boost::system::error_code error) {
          if (!error) look_for_room_from_loop(index);
        });
        return;
      default:
        break;
    }
    device.busy = true;
    auto action = SwapThread::Action::kMeasure;
    if (step.kind == Kind::kSwapOut) {
      if (available_memory_bytes() < residency_->bytes(step.rank) + kSpareHostBytes)
        return fail_from_loop(
            {ErrorCode::kIo,
             fmt::format("device swap: the {} bytes that rank {} has on device {} do not fit the host's "
                         "memory, of which {} bytes are available",
                         residency_->bytes(step.rank), step.rank, index, available_memory_bytes())});
      send(step.rank, wire::Swap{false});
      action = SwapThread::Action::kSwapOut;
    } else if (step.kind == Kind::kSwapIn) {
      action = SwapThread::Action::kSwapIn;
    }
    device.thread.run(action, at(step.rank).connection->pid(), [this, index, step](const SwapThread::Outcome& outcome) {
      boost::asio::post(io_, [this, index, step, outcome] { swap_done_from_loop(index, step, outcome); });
    });
  }
}

void Coordinator::Impl::swap_done_from_loop(int index, Residency::Step step, const SwapThread::Outcome& outcome) {
  Admissions& device = *admissions_[static_cast<std::size_t>(index)];
  device.busy = false;
  if (stopping_) return;
  need_turn_end();
  quiet_watch_.disturb();
  const bool out = step.kind == Kind::kSwapOut;
  if (step.kind == Kind::kMeasure) {
    residency_->measured(index, outcome.after);
  } else if (outcome.status) {
    device_swaps_ += out;
    device_swap_ns_ += outcome.duration_ns;
    if (out)
      residency_->swapped_out(step.rank, outcome.before, outcome.after);
    else
      residency_->swapped_in(step.rank, outcome.after);
    device_swapped_bytes_ += residency_->bytes(step.rank);
    if (out && !at(step.rank).finished) send(step.rank, wire::Swap{true});
    log(LogLevel::kDebug, "rank {}: {} bytes {} device {} in {:.3f} s", step.rank, residency_->bytes(step.rank),
        out ? "left" : "are back on", index, static_cast<double>(outcome.duration_ns) * 1e-9);
  } else if (process_ended(step.rank)) {
    residency_->ended(step.rank);
    if (!at(step.rank).finished) died_from_loop(step.rank, "its process has ended");
  } else if (out && outcome.status.error().code == ErrorCode::kTimeout) {
    residency_->is_busy(step.rank);
  } else {
    return fail_from_loop(
        {ErrorCode::kIo, fmt::format("device swap: rank {} could not be swapped {} device {}: {}", step.rank,
                                     out ? "out of" : "into", index, outcome.status.error().message)});
  }
  admit_from_loop(index);
}

}  // namespace prism
