#include "backend/client/fork_guard.hpp"

#include <pthread.h>

#include <set>

#include "backend/client/session.hpp"

namespace prism {
namespace {

std::mutex& registry_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::set<RankClient::Impl*>& registry() {
  static auto* sessions = new std::set<RankClient::Impl*>();  // outlives static destruction
  return *sessions;
}

}  // namespace

// Locks are held across fork(), so that the child's copies are in a consistent state.
void ForkGuard::add(RankClient::Impl& session) {
  static const int installed = pthread_atfork(
      [] {
        registry_mutex().lock();
        for (auto* each : registry()) {
          each->mutex_.lock();
          each->staging_->mutex().lock();
        }
      },
      [] {
        for (auto* each : registry()) {
          each->staging_->mutex().unlock();
          each->mutex_.unlock();
        }
        registry_mutex().unlock();
      },
      [] {
        for (auto* each : registry()) {
          each->inert_ = true;
          each->socket_.reset();  // does not shut the parent's connection down
          each->staging_->mutex().unlock();
          each->mutex_.unlock();
        }
        registry().clear();
        registry_mutex().unlock();
      });
  static_cast<void>(installed);
  std::lock_guard lock(registry_mutex());
  registry().insert(&session);
}

void ForkGuard::remove(RankClient::Impl& session) {
  std::lock_guard lock(registry_mutex());
  registry().erase(&session);
}

}  // namespace prism
