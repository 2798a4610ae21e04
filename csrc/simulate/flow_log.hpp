// A network that notes when each message left and arrived, on its way to another one.
#pragma once
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulate/network.hpp"

namespace prism::simulate {

class FlowLog final : public Network {
 public:
  struct Flow {
    Picoseconds start, end;  // ready to leave; delivered, kNever where that is still to come
    std::int32_t from, to;   // endpoints
    std::int64_t bytes;
  };
  // `sends`: called with each message before it leaves.
  FlowLog(Network& network, std::function<void(const Message&)> sends) : network_(network), sends_(std::move(sends)) {}

  Result<void> send(Picoseconds at, const Message& message) override {
    under_way_[message.id] = flows_.size();
    flows_.push_back({at, kNever, message.from, message.to, message.bytes});
    sends_(message);
    return network_.send(at, message);
  }
  Picoseconds begin_operation(std::int32_t endpoint, Picoseconds at) override {
    return network_.begin_operation(endpoint, at);
  }
  Picoseconds copy(std::int32_t endpoint, Picoseconds at, std::int64_t bytes) override {
    return network_.copy(endpoint, at, bytes);
  }
  Picoseconds word_waits(Picoseconds at, std::int32_t from, std::int32_t to) const override {
    return network_.word_waits(at, from, to);
  }
  Picoseconds next() const override { return network_.next(); }
  Result<void> advance(Picoseconds until, std::vector<Delivery>& delivered) override {
    auto known = delivered.size();
    PRISM_RETURN_IF_ERROR(network_.advance(until, delivered));
    for (; known < delivered.size(); ++known) {
      const auto flow = under_way_.extract(delivered[known].id);
      flows_[flow.mapped()].end = delivered[known].at;
    }
    return {};
  }
  void observe(FlowObserver& observer) override { network_.observe(observer); }
  std::uint64_t events() const override { return network_.events(); }
  std::uint64_t packets() const override { return network_.packets(); }
  bool has_memory() const override { return network_.has_memory(); }
  const std::vector<Flow>& flows() const { return flows_; }  // in the order in which they left

 private:
  Network& network_;
  std::function<void(const Message&)> sends_;
  std::vector<Flow> flows_;
  std::unordered_map<std::uint64_t, std::size_t> under_way_;  // by id
};

}  // namespace prism::simulate
