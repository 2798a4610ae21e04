#include "backend/c10d/session.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <atomic>
#include <memory>

namespace prism {
namespace {

std::unique_ptr<RankClient> client;
std::atomic<std::int64_t> outstanding_futures{0};
std::atomic<bool> device_used{false};

}  // namespace

RankClient* session_client() { return client.get(); }

void session_connect(const std::string& address, int rank, int world_size) {
  TORCH_CHECK(!client, "this process is already connected to a coordinator");
  auto connected = RankClient::connect({.address = address, .rank = rank, .world_size = world_size});
  if (!connected)
    throw_distributed({connected.error().code, fmt::format("rank {} could not join the capture at '{}': {}", rank,
                                                           address, connected.error().message)});
  client = std::move(*connected);
  if (device_used) client->note_device_use();
}

void session_note_device_use() {
  device_used = true;
  if (client) client->note_device_use();
}

void session_finish(const std::string& error_text) {
  if (!client) return;
  client->finish(error_text);
  client.reset();
}

void session_abandon() {
  (void)client.release();
  outstanding_futures = 0;
}

bool session_uses_device() { return device_used; }

void future_handed_out() { outstanding_futures.fetch_add(1, std::memory_order_relaxed); }
void future_completed() { outstanding_futures.fetch_sub(1, std::memory_order_relaxed); }
bool futures_outstanding() { return outstanding_futures.load(std::memory_order_relaxed) > 0; }

void throw_distributed(const Error& error) { C10_THROW_ERROR(DistBackendError, error.message); }
void throw_store(const Error& error) { C10_THROW_ERROR(DistStoreError, error.message); }

}  // namespace prism
