#include "data/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/deadline.hpp"
#include "data/hash.hpp"
#include "data/index.hpp"
#include "data/order.hpp"
#include "data/output_file.hpp"
#include "data/tensor_store.hpp"

namespace prism {
namespace {

// Where a communication's blocks and digests begin; they end where the next one's begin.
struct Row {
  RecordedComm comm;  // without the group's name and members
  std::uint32_t group;
  std::size_t first_block, first_digest;
};
struct BlockRow {
  std::int32_t member;
  std::uint32_t index, tensor;
};
struct DigestRow {
  std::int32_t member;
  ContentHash hash;
};

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(now_ns()) {}
  ~Stopwatch() { seconds_ += static_cast<double>(now_ns() - begin_) * 1e-9; }

 private:
  double& seconds_;
  const std::int64_t begin_;
};

}  // namespace

struct DataWriter::Impl {
  explicit Impl(Options given) : options(std::move(given)), store(options.folder) {}

  std::uint32_t group_number(const RecordedComm& comm) {
    const auto [place, added] = groups.try_emplace(comm.group, static_cast<std::uint32_t>(members.size()));
    if (added) members.push_back(comm.members);
    return place->second;
  }

  Error with_amount(const Error& error, std::uint64_t more) const {
    if (error.code != ErrorCode::kIo) return error;
    return {error.code, fmt::format("recording tensors: {}; {} bytes were written to '{}', {} more were to follow "
                                    "(--data)",
                                    error.message, store.stored_bytes(), options.folder, more)};
  }

  Result<void> write();

  const Options options;
  TensorStore store;
  std::map<std::string, std::uint32_t> groups;
  std::vector<std::vector<std::int32_t>> members;  // by group number
  std::vector<Row> rows;
  std::vector<BlockRow> blocks;
  std::vector<DigestRow> digests;
  Statistics kept;
};

DataWriter::DataWriter(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
DataWriter::~DataWriter() = default;

Result<void> DataWriter::add(const RecordedComm& comm, std::span<const RecordedBlock> blocks) {
  Impl& self = *impl_;
  if (blocks.empty()) return {};
  const Stopwatch watch(self.kept.seconds);
  Row& row = self.rows.emplace_back(Row{comm, self.group_number(comm), self.blocks.size(), self.digests.size()});
  row.comm.group.clear();
  row.comm.members = {};
  const RecordedBlock* before = nullptr;
  InputsDigest digest;
  for (const RecordedBlock& block : blocks) {
    const ContentHash hash = content_hash(block.bytes);
    if (block.sent) {
      if (!before || before->member != block.member) digest = {};
      digest.add(block.bytes.size(), hash);
      if (!before || before->member != block.member) self.digests.push_back({block.member, {}});
      self.digests.back().hash = digest.value();
    }
    before = &block;
    if (!block.keep) continue;
    const auto tensor = self.store.add(block.dtype, block.bytes, hash);
    if (!tensor) return self.with_amount(tensor.error(), block.bytes.size());
    if (const auto most = self.options.most_bytes; most != 0 && self.store.stored_bytes() > most)
      return Error{ErrorCode::kIo, fmt::format("recording tensors: more than {} bytes, as many as may be kept in '{}'",
                                               most, self.options.folder)};
    self.blocks.push_back({block.member, block.index, *tensor});
    ++self.kept.tensors;
    self.kept.bytes += block.bytes.size();
  }
  return {};
}

Result<void> DataWriter::finish() {
  const Stopwatch watch(impl_->kept.seconds);
  if (auto written = impl_->write(); !written) return impl_->with_amount(written.error(), 0);
  return {};
}

Result<void> DataWriter::Impl::write() {
  DataHeader header{options.world_size, options.for_ranks, {}, 0};
  DataColumns<DataOwned> c;
  PRISM_ASSIGN_OR_RETURN(const auto places, store.finish(c, header.shards));
  std::vector<std::uint32_t> by_name(members.size());  // group number -> place in the order of names
  c.group_member_offset.push_back(0);
  for (const auto& [name, number] : groups) {
    by_name[number] = static_cast<std::uint32_t>(header.groups.size());
    header.groups.push_back(name);
    c.group_member.insert(c.group_member.end(), members[number].begin(), members[number].end());
    c.group_member_offset.push_back(c.group_member.size());
  }
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const RecordedComm& comm = rows[i].comm;
    return comm_key(by_name[rows[i].group], comm.source, comm.destination, comm.tag, comm.seq);
  };
  std::ranges::sort(order, {}, key);
  c.comm_block_offset.push_back(0);
  c.comm_digest_offset.push_back(0);
  for (std::size_t n = 0; n < order.size(); ++n) {
    const std::size_t i = order[n];
    const RecordedComm& comm = rows[i].comm;
    if (n > 0 && key(order[n - 1]) == key(i))
      return Error{ErrorCode::kInternal, fmt::format("{} #{} of group '{}' was recorded twice", name(comm.op), comm.seq,
                                                     header.groups[by_name[rows[i].group]])};
    c.comm_group.push_back(by_name[rows[i].group]);
    c.comm_op.push_back(static_cast<std::uint8_t>(comm.op));
    c.comm_dtype.push_back(static_cast<std::uint8_t>(comm.dtype));
    c.comm_reduce_op.push_back(static_cast<std::uint8_t>(comm.reduce_op));
    c.comm_root.push_back(comm.root);
    c.comm_source.push_back(comm.source);
    c.comm_destination.push_back(comm.destination);
    c.comm_tag.push_back(comm.tag);
    c.comm_seq.push_back(comm.seq);
    const bool last = i + 1 == rows.size();
    for (auto b = rows[i].first_block; b < (last ? blocks.size() : rows[i + 1].first_block); ++b) {
      c.block_member.push_back(blocks[b].member);
      c.block_index.push_back(blocks[b].index);
      c.block_tensor.push_back(places[blocks[b].tensor]);
    }
    for (auto d = rows[i].first_digest; d < (last ? digests.size() : rows[i + 1].first_digest); ++d) {
      c.digest_member.push_back(digests[d].member);
      c.digest_low.push_back(digests[d].hash.low);
      c.digest_high.push_back(digests[d].hash.high);
    }
    c.comm_block_offset.push_back(c.block_member.size());
    c.comm_digest_offset.push_back(c.digest_member.size());
  }
  PRISM_RETURN_IF_ERROR(write_index(header, c, index_path(options.folder)));
  PRISM_RETURN_IF_ERROR(synchronize(index_path(options.folder)));
  return synchronize(options.folder);
}

DataWriter::Statistics DataWriter::statistics() const {
  Statistics all = impl_->kept;
  all.distinct = impl_->store.distinct();
  all.stored_bytes = impl_->store.stored_bytes();
  return all;
}

}  // namespace prism
