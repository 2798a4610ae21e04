// The key-value store that ranks meet in: strings to bytes, queues, and waiting for keys. Loop thread only.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/coordinator/pending.hpp"
#include "backend/protocol/messages.hpp"

namespace prism {

class Store {
 public:
  struct Waiting : Pending {
    int rank = -1;
    WorkId work = 0;
    wire::StoreVerb verb = wire::StoreVerb::kWait;
    std::vector<std::string> keys;  // those that are not there yet
    std::string describe() const override;
    std::vector<int> missing() const override { return {}; }
  };
  // reply(rank, answer): of requests that had to wait.
  using Reply = std::function<void(int rank, wire::StoreReply answer)>;
  explicit Store(Reply reply) : reply_(std::move(reply)) {}

  // The answer; kPending when it will come through Reply.
  wire::StoreReply serve(int rank, wire::StoreRequest request);
  // What a request that was answered kPending waits for; nullptr once it is answered.
  std::shared_ptr<Waiting> waiting(int rank, WorkId work) const;
  void cancel(int rank, WorkId work);
  // Counts up with every change.
  std::uint64_t changes() const { return changes_; }

 private:
  using Bytes = wire::Buffer;
  void appeared(const std::string& key);
  void pushed(const std::string& key);
  wire::StoreReply wait(int rank, const wire::StoreRequest& request, std::vector<std::string> missing);
  void forget(const std::shared_ptr<Waiting>& waiting);
  wire::StoreReply add(const wire::StoreRequest& request);

  Reply reply_;
  std::map<std::string, Bytes> values_;
  std::unordered_map<std::string, std::deque<Bytes>> queues_;  // none is empty
  std::unordered_map<std::string, std::deque<std::shared_ptr<Waiting>>> waiting_for_key_, waiting_for_item_;
  std::map<std::pair<int, WorkId>, std::shared_ptr<Waiting>> waiting_;
  std::uint64_t changes_ = 0;
};

}  // namespace prism
