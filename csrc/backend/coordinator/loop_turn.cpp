// A turn of the loop, and who may compute: slots handed out, taken from, watched.
#include <fmt/format.h>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "core/log.hpp"

namespace prism {
namespace {

constexpr int kStoppedChecks = 4;  // in a row

}  // namespace

void Coordinator::Impl::mark_dirty(int rank) {
  Rank& r = at(rank);
  if (!r.dirty) dirty_.push_back(rank);
  r.dirty = true;
  need_turn_end();
}

void Coordinator::Impl::need_turn_end() {
  if (turn_end_posted_) return;
  turn_end_posted_ = true;
  boost::asio::post(io_, [this] { end_turn_from_loop(); });
}

void Coordinator::Impl::end_turn_from_loop() {
  turn_end_posted_ = false;
  if (!stopping_) {
    store_changed_from_loop();
    for (int rank; (rank = scheduler_.grant(now_ns())) >= 0;) grant(rank);
    // What a blocked rank has not asked for may have callbacks that others wait for; a slot that nobody else wants is
    // well spent on them.
    const bool any_free = scheduler_.has_free_slot();
    for (const int rank : any_free ? std::vector<int>(holding_.begin(), holding_.end()) : std::vector<int>()) {
      if (!scheduler_.has_free_slot(rank) || scheduler_.state(rank) != SlotState::kBlocked) continue;
      scheduler_.make_ready(rank, false);
      if (const int next = scheduler_.grant(now_ns()); next >= 0) grant(next);  // whoever got it is told
    }
    admit_waiting_from_loop();
    const int waiting_here = options_.hosts.empty() ? scheduler_.waiting() : scheduler_.waiting_at(0);
    memory_->control().ranks_waiting.store(static_cast<std::uint32_t>(waiting_here), std::memory_order_relaxed);
    timeouts_.let_time_pass(scheduler_.waiting() == 0 && !is_swapping() && postponed_.empty() && !links_are_busy());
    bool unhooked = false;
    const bool is_quiet = quiet();
    if (is_quiet)
      for (int rank = 0; rank < options_.world_size; ++rank)
        unhooked = unhooked || scheduler_.state(rank) == SlotState::kLent;
    quiet_watch_.look(is_quiet, unhooked);
    if (const auto pause_end = scheduler_.next_pause_end(); pause_end >= 0 && pause_end != pause_armed_ns_) {
      pause_armed_ns_ = pause_end;
      pause_timer_.expires_at(Clock::time_point(std::chrono::nanoseconds(pause_end)));
      pause_timer_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        pause_armed_ns_ = -1;
        need_turn_end();
      });
    }
  }
  std::vector<int> dirty;
  dirty.swap(dirty_);
  for (const int rank : dirty) {
    Rank& r = at(rank);
    r.dirty = false;
    wire::Buffer* const to = out(rank);
    if (!r.freed.empty() && to != nullptr) wire::append_frame(*to, wire::Freed{std::exchange(r.freed, {})});
    if (r.connection) {
      r.connection->flush();
    } else if (to != nullptr) {
      append_rank_frames(link(r.host).connection->out(), rank, *to);
      to->clear();
    }
  }
  flush_links();
  end_if_drained_from_loop();
}

void Coordinator::Impl::every(std::chrono::nanoseconds period, boost::asio::steady_timer& timer, void (Impl::*then)()) {
  timer.expires_after(period);
  timer.async_wait([this, period, &timer, then](boost::system::error_code error) {
    if (error || stopping_) return;
    (this->*then)();
    every(period, timer, then);
  });
}

void Coordinator::Impl::grant(int rank) {
  if (!residency_) return send_grant(rank);
  Admissions& device = *admissions_[static_cast<std::size_t>(residency_->device_of(rank))];
  at(rank).admitting = true;
  device.queue.push_back(rank);
  admit_from_loop(residency_->device_of(rank));
}

// A slot, and what was held for this rank.
void Coordinator::Impl::send_grant(int rank) {
  forget_block(rank);
  flush_held(rank);
  send(rank, wire::Grant{++at(rank).grants});
}

void Coordinator::Impl::flush_held(int rank) {
  if (holding_.erase(rank) == 0) return;
  Rank& r = at(rank);
  if (wire::Buffer* const to = out(rank)) {
    to->insert(to->end(), r.held.begin(), r.held.end());
    mark_dirty(rank);
  }
  r.held.clear();
}

// A holder that spins on something must not miss it, nor keep from running those who alone can bring it about.
void Coordinator::Impl::watch_holders_from_loop() {
  const std::int64_t long_ago = now_ns() - options_.maximal_tenure.count();
  for (const int rank : scheduler_.holders_since(long_ago))
    if (!at(rank).admitting) flush_held(rank);
  if (scheduler_.waiting() == 0) return;
  for (const int rank : scheduler_.holders_since(long_ago)) {
    if (scheduler_.excused(rank) || at(rank).admitting) continue;
    if (at(rank).outstanding.empty() || scheduler_.waiting_beside(rank) == 0) continue;
    log(LogLevel::kDebug, "rank {} spins; another may run beside it", rank);
    scheduler_.excuse(rank);
    need_turn_end();
  }
}

// A stopped process (SIGSTOP) holds what it holds for ever and answers no question.
void Coordinator::Impl::watch_stopped_from_loop() {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    Rank& r = at(rank);
    const bool asked = scheduler_.state(rank) == SlotState::kRunning || quiet_watch_.owes_answer(rank);
    if (!r.joined || r.finished || !asked || !(r.connection ? is_stopped(r.connection->pid()) : r.stopped)) {
      r.stopped_checks = 0;
    } else if (++r.stopped_checks >= kStoppedChecks) {
      const auto where = r.connection ? fmt::format("process {}", r.connection->pid()) : "on " + host(r.host).name;
      return fail_from_loop({ErrorCode::kPeerFailed, fmt::format("rank {} ({}) is stopped by a signal", rank, where)});
    }
  }
}

// A rank whose store poll was in vain looks again as soon as the store has changed.
void Coordinator::Impl::store_changed_from_loop() {
  if (store_changes_seen_ == store_.changes()) return;
  store_changes_seen_ = store_.changes();
  for (const int rank : std::exchange(store_pollers_, {})) {
    at(rank).polls_store = false;
    if (scheduler_.polls(rank)) scheduler_.make_ready(rank, true);
  }
}

void Coordinator::Impl::forget_block(int rank) {
  Rank& r = at(rank);
  r.awaited.clear();
  timeouts_.cancel(std::exchange(r.patience, 0));
  if (std::exchange(r.impatient, false)) --impatient_;
  if (std::exchange(r.polls_store, false)) store_pollers_.erase(rank);
}

}  // namespace prism
