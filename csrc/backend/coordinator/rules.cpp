#include "backend/coordinator/rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace prism::rules {
Family family(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
      return Family::kAllReduce;
    case Op::kReduce:
      return Family::kReduce;
    case Op::kBroadcast:
      return Family::kBroadcast;
    case Op::kAllGather:
    case Op::kAllGatherIntoTensor:
    case Op::kAllGatherCoalesced:
    case Op::kAllGatherIntoTensorCoalesced:
      return Family::kAllGather;
    case Op::kGather:
      return Family::kGather;
    case Op::kScatter:
      return Family::kScatter;
    case Op::kReduceScatter:
    case Op::kReduceScatterTensor:
    case Op::kReduceScatterTensorCoalesced:
      return Family::kReduceScatter;
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
      return Family::kAllToAll;
    default:
      return Family::kNone;
  }
}

namespace {

std::uint64_t total(const std::vector<Region>& regions) {
  return std::accumulate(regions.begin(), regions.end(), std::uint64_t{0},
                         [](std::uint64_t sum, Region region) { return sum + region.bytes; });
}

Error invalid(const Operation& operation, const std::string& why) {
  return {ErrorCode::kInvalidInput, fmt::format("{}: {}", describe(operation), why)};
}

Error disagree(const Exchange& exchange, const Arrival& a, const Arrival& b) {
  return {ErrorCode::kMismatch,
          fmt::format("ranks {} and {} disagree in collective #{} of group '{}': rank {} calls {}, rank {} calls {}",
                      a.rank, b.rank, exchange.seq, exchange.group->key, a.rank, describe(a.operation), b.rank,
                      describe(b.operation))};
}

// Numbers of inputs and outputs that a member must bring; where it brings k tensors, any k >= 1.
struct Counts {
  std::ptrdiff_t inputs, outputs;
};

Counts counts(const Operation& o, std::ptrdiff_t n, bool is_root) {
  const auto in = static_cast<std::ptrdiff_t>(o.inputs.size()),
             out = static_cast<std::ptrdiff_t>(o.output_bytes.size());
  switch (family(o.op)) {
    case Family::kAllReduce:
      return {std::max<std::ptrdiff_t>(in, 1), std::max<std::ptrdiff_t>(in, 1)};
    case Family::kReduce:
      return {std::max<std::ptrdiff_t>(in, 1), is_root ? in : 0};
    case Family::kBroadcast:
      return {is_root ? std::max<std::ptrdiff_t>(in, 1) : 0, is_root ? 0 : std::max<std::ptrdiff_t>(out, 1)};
    case Family::kAllGather:
      return {std::max<std::ptrdiff_t>(in, 1), in * n};
    case Family::kGather:
      return {std::max<std::ptrdiff_t>(in, 1), is_root ? in * n : 0};
    case Family::kScatter:
      return {is_root ? n : 0, 1};
    case Family::kReduceScatter:
      return {std::max<std::ptrdiff_t>(out, 1) * n, std::max<std::ptrdiff_t>(out, 1)};
    case Family::kAllToAll:
      return {n, n};
    case Family::kNone:
      break;
  }
  if (o.op == Op::kSend) return {1, 0};
  if (o.op == Op::kRecv) return {0, 1};
  return {0, 0};
}

// Whether what a member hands to itself is as large as what it expects from itself.
bool own_sizes_agree(const Operation& o, std::size_t member) {
  const auto same = [&](std::size_t input, std::size_t output, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (o.inputs[input + i].bytes != o.output_bytes[output + i]) return false;
    return true;
  };
  const std::size_t in = o.inputs.size(), out = o.output_bytes.size();
  switch (family(o.op)) {
    case Family::kAllReduce:
      return same(0, 0, in);
    case Family::kReduce:
      return out == 0 || same(0, 0, in);
    case Family::kAllGather:
      return same(0, member * in, in);
    case Family::kGather:
      return out == 0 || same(0, member * in, in);
    case Family::kScatter:
      return in == 0 || same(member, 0, 1);
    case Family::kReduceScatter:
      return same(member * out, 0, out);
    case Family::kAllToAll:
      return same(member, member, 1);
    default:
      return true;
  }
}

bool same_input_bytes(const Operation& a, const Operation& b) {
  return std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                    [](Region x, Region y) { return x.bytes == y.bytes; });
}

std::vector<std::uint64_t> broadcast_bytes(const Operation& o) {
  if (o.inputs.empty()) return o.output_bytes;
  std::vector<std::uint64_t> bytes;
  for (const Region region : o.inputs) bytes.push_back(region.bytes);
  return bytes;
}

bool sizes_agree(const Operation& first, const Arrival& later) {
  const Operation& o = later.operation;
  switch (family(o.op)) {
    case Family::kAllReduce:
    case Family::kReduce:
    case Family::kReduceScatter:
      return same_input_bytes(first, o);
    case Family::kBroadcast:
      return broadcast_bytes(first) == broadcast_bytes(o);
    case Family::kAllGather:  // its own piece within its list was looked at by check_call
      return first.output_bytes == o.output_bytes;
    default:
      return true;
  }
}

}  // namespace

std::string describe(const Operation& o) {
  std::string text = fmt::format("{}(", name(o.op));
  if (o.dtype != DType::kNone) text += fmt::format("{}, ", name(o.dtype));
  if (o.reduce_op != ReduceOp::kNone) text += fmt::format("{}, ", name(o.reduce_op));
  if (o.root >= 0) text += fmt::format("root {}, ", o.root);
  if (!o.shapes.empty()) {
    constexpr std::size_t kShown = 4;
    const auto shown = std::span(o.shapes).first(std::min(kShown, o.shapes.size()));
    text += fmt::format("{} {}{}, ", o.shapes.size() == 1 ? "shape" : "shapes", fmt::join(shown, " "),
                        o.shapes.size() > kShown ? fmt::format(" and {} more", o.shapes.size() - kShown) : "");
  }
  return text + fmt::format("{} bytes in, {} bytes out)", total(o.inputs),
                            std::accumulate(o.output_bytes.begin(), o.output_bytes.end(), std::uint64_t{0}));
}

Result<void> check_call(const Operation& o, int members, int member) {
  if (o.op == Op::kNone) return invalid(o, "no operation");
  const bool rooted = is_rooted(o.op);
  if (rooted && (o.root < 0 || o.root >= members))
    return invalid(o, fmt::format("root {}; accepted: 0 to {}", o.root, members - 1));
  if (is_point_to_point(o.op) && (o.peer < (o.op == Op::kRecv ? -1 : 0) || o.peer >= members))
    return invalid(o, fmt::format("peer {}; accepted: 0 to {}", o.peer, members - 1));
  const auto want = counts(o, members, rooted && o.root == member);
  if (std::ssize(o.inputs) != want.inputs || std::ssize(o.output_bytes) != want.outputs)
    return invalid(o, fmt::format("{} inputs and {} outputs by member {} of {}; accepted: {} and {}", o.inputs.size(),
                                  o.output_bytes.size(), member, members, want.inputs, want.outputs));
  if (!own_sizes_agree(o, static_cast<std::size_t>(member)))
    return Error{ErrorCode::kMismatch,
                 fmt::format("{}: the sizes of its inputs do not fit those of its outputs", describe(o))};
  if (!is_reduction(o.op)) return {};
  const std::size_t element = element_size(o.dtype);
  if (element == 0 || o.reduce_op == ReduceOp::kNone) return invalid(o, "a reduction needs a dtype and a reduce op");
  for (const Region region : o.inputs)
    if (region.bytes % element != 0)
      return invalid(o, fmt::format("an input of {} bytes; accepted: a multiple of {}", region.bytes, element));
  return {};
}

Result<void> check_members(const Exchange& exchange, const Arrival& later) {
  const Arrival& first = exchange.arrivals[static_cast<std::size_t>(exchange.first)];
  const Operation &a = first.operation, &b = later.operation;
  if (a.op != b.op || a.dtype != b.dtype || a.reduce_op != b.reduce_op || a.root != b.root || !sizes_agree(a, later))
    return disagree(exchange, first, later);
  return {};
}

Result<void> check_complete(const Exchange& exchange) {
  const auto& all = exchange.arrivals;
  const std::size_t n = all.size();
  const Operation& o = exchange.operation();
  if (!exchange.collective) {
    const Arrival &send = all[0], &receive = all[1];
    if (send.operation.inputs[0].bytes == receive.operation.output_bytes[0]) return {};
    return Error{ErrorCode::kMismatch,
                 fmt::format("rank {} sends {} to rank {}, which expects {} (tag {}, group '{}')", send.rank,
                             describe(send.operation), receive.rank, describe(receive.operation), send.operation.tag,
                             exchange.group->key)};
  }
  const auto root = static_cast<std::size_t>(std::max(o.root, 0));
  for (std::size_t i = 0; i < n; ++i) {
    const Operation& mine = all[i].operation;
    switch (family(o.op)) {
      case Family::kGather: {
        const auto& expected = all[root].operation.output_bytes;
        const std::size_t k = mine.inputs.size();
        if (k * n != expected.size()) return disagree(exchange, all[root], all[i]);
        for (std::size_t j = 0; j < k; ++j)
          if (mine.inputs[j].bytes != expected[i * k + j]) return disagree(exchange, all[root], all[i]);
        break;
      }
      case Family::kScatter:
        if (mine.output_bytes[0] != all[root].operation.inputs[i].bytes) return disagree(exchange, all[root], all[i]);
        break;
      case Family::kAllToAll:
        for (std::size_t j = 0; j < n; ++j)
          if (mine.inputs[j].bytes != all[j].operation.output_bytes[i])
            return Error{ErrorCode::kMismatch,
                         fmt::format("{}; rank {} sends {} bytes to rank {}, which expects {}",
                                     disagree(exchange, all[i], all[j]).message, all[i].rank, mine.inputs[j].bytes,
                                     all[j].rank, all[j].operation.output_bytes[i])};
        break;
      default:
        return {};
    }
  }
  return {};
}

std::vector<std::uint64_t> result_bytes(const Exchange& exchange) {
  std::vector<std::uint64_t> bytes;
  for (const Region region : exchange.operation().inputs) bytes.push_back(region.bytes);
  return bytes;
}

std::vector<Region> outcome(const Exchange& exchange, std::size_t index, std::span<const Region> results) {
  const auto& all = exchange.arrivals;
  const Operation& mine = all[index].operation;
  const auto root = static_cast<std::size_t>(std::max(mine.root, 0));
  std::vector<Region> regions;
  const auto append = [&](auto first, auto last) { regions.insert(regions.end(), first, last); };
  const auto append_all = [&](const auto& list) { append(list.begin(), list.end()); };
  switch (family(mine.op)) {
    case Family::kAllReduce:
      append_all(results);
      break;
    case Family::kReduce:
      if (index == root) append_all(results);
      break;
    case Family::kReduceScatter: {
      const std::size_t k = mine.output_bytes.size();
      append_all(results.subspan(index * k, k));
      break;
    }
    case Family::kBroadcast:
      if (index != root) append_all(all[root].operation.inputs);
      break;
    case Family::kGather:
      if (index != root) break;
      [[fallthrough]];
    case Family::kAllGather:
      regions.reserve(mine.output_bytes.size());
      for (const Arrival& member : all) append_all(member.operation.inputs);
      break;
    case Family::kScatter:
      regions.push_back(all[root].operation.inputs[index]);
      break;
    case Family::kAllToAll:
      for (const Arrival& member : all) regions.push_back(member.operation.inputs[index]);
      break;
    case Family::kNone:
      if (mine.op == Op::kRecv) regions = all[0].operation.inputs;
      break;
  }
  return regions;
}

std::vector<std::uint64_t> expected_of(const Exchange& exchange, std::size_t member) {
  const auto& all = exchange.arrivals;
  const Operation& o = exchange.operation();
  const bool is_root = static_cast<int>(member) == o.root;
  // What `reader` gets is the blocks of one member after the other.
  const auto block_of = [&](const Arrival& reader) {
    const auto& bytes = reader.operation.output_bytes;
    const auto k = static_cast<std::ptrdiff_t>(bytes.size() / all.size());
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(member) * k;
    return std::vector<std::uint64_t>(first, first + k);
  };
  std::vector<std::uint64_t> bytes;
  switch (family(o.op)) {
    case Family::kBroadcast:
      if (is_root) bytes = o.output_bytes;
      break;
    case Family::kAllGather:
      return block_of(all[static_cast<std::size_t>(exchange.first)]);
    case Family::kGather:
      return block_of(all[static_cast<std::size_t>(o.root)]);
    case Family::kScatter:
      if (is_root)
        for (const Arrival& reader : all) bytes.push_back(reader.work == 0 ? 0 : reader.operation.output_bytes[0]);
      break;
    case Family::kAllToAll:
      for (const Arrival& reader : all) bytes.push_back(reader.work == 0 ? 0 : reader.operation.output_bytes[member]);
      break;
    default:
      if (!exchange.collective && member == 0 && all[1].work != 0) bytes = all[1].operation.output_bytes;
  }
  return bytes;
}

}  // namespace prism::rules
