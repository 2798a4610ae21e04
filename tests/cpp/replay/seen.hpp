// What an engine has executed, in the terms in which a repeated record and one of all iterations agree.
#pragma once
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "replay/engine.hpp"
#include "replay/program.hpp"

namespace prism::test {

class Seen final : public engine::Observer {
 public:
  Seen(const engine::Job& job, const engine::Loop* loop) : job_(job), loop_(loop) {}

  using Times = std::pair<std::int64_t, std::int64_t>;  // start, end
  std::map<std::pair<int, int>, std::vector<Times>> lanes;
  // By rank, operation, group slot, peer, tag and number.
  using Call = std::tuple<int, Op, std::uint32_t, std::int32_t, std::int32_t, std::int64_t>;
  std::map<Call, Times> transfers;
  std::map<std::pair<int, std::string_view>, std::vector<std::int64_t>> spans;  // ns of those with a name

  Call call(int rank, std::uint32_t comm, std::uint32_t round) const {
    const auto& view = job_.view(rank);
    std::int64_t seq = view.comm_seq[comm];
    if (loop_) {
      const auto& plan = loop_->programs()[job_.ranks[rank].cls].comms[comm];
      seq += (plan.region == engine::Period::kAfter ? loop_->rounds() - 1 : round) * plan.seq_per_round;
    }
    return {rank, static_cast<Op>(view.comm_op[comm]), view.comm_group[comm], view.comm_peer[comm], view.comm_tag[comm],
            seq};
  }

  void ran(int rank, std::uint32_t node, std::uint32_t, std::int64_t start, std::int64_t end) override {
    lanes[{rank, job_.view(rank).node_lane[node]}].emplace_back(start, end);
    if (const auto name = job_.view(rank).node_name[node]; name != kNoName)
      spans[{rank, job_.graph->string(name)}].push_back(end - start);
  }
  void transferred(int rank, std::uint32_t comm, std::uint32_t round, std::int64_t start, std::int64_t end) override {
    const bool is_new = transfers.try_emplace(call(rank, comm, round), start, end).second;
    CHECK(is_new);
  }

 private:
  const engine::Job& job_;
  const engine::Loop* loop_;
};

}  // namespace prism::test
