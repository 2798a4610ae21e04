#include "backend/coordinator/data_recorder.hpp"

#include <boost/asio/post.hpp>

#include <cstring>
#include <utility>

namespace prism {
namespace {

constexpr std::uint64_t kCopiedBytes = 32u << 10;  // an operation's, up to here: cheaper than keeping them
constexpr std::uint64_t kBatchBytes = 1u << 20;    // of copies that wait for company
constexpr std::size_t kBatchOperations = 1024;

RecordedComm comm_of(const Exchange& exchange) {
  const Arrival& first = exchange.arrivals[0];  // of a message: the sender
  const Operation& o = first.operation;
  RecordedComm comm{exchange.group->key, exchange.group->members, o.op, o.dtype, o.reduce_op};
  comm.seq = static_cast<std::int64_t>(o.number);
  if (is_rooted(o.op)) comm.root = o.root;
  if (exchange.collective) return comm;
  comm.source = first.rank;
  comm.destination = exchange.arrivals[1].rank;
  comm.tag = o.tag;
  return comm;
}

}  // namespace

DataRecorder::DataRecorder(boost::asio::io_context& loop, DataWriter::Options options, bool whole_numbers,
                           std::uint64_t backlog_limit, std::function<void(const Result<void>&)> written)
    : loop_(loop),
      writer_(std::move(options)),
      whole_numbers_(whole_numbers),
      backlog_limit_(backlog_limit),
      written_(std::move(written)) {}

DataRecorder::~DataRecorder() {
  cancel();
  join();
}

void DataRecorder::join() { thread_.join(); }

void DataRecorder::record(const Exchange& exchange, std::vector<RecordedBlock> blocks,
                          std::vector<std::shared_ptr<void>> holds) {
  if (blocks.empty() || exchange.arrivals[0].operation.number >= kNotInTrace) return;
  if (whole_numbers_ && !is_whole(exchange.operation().dtype)) return;
  Job job{comm_of(exchange), std::move(blocks), {}, std::move(holds), 0};
  for (const RecordedBlock& block : job.blocks) job.bytes += block.bytes.size();
  if (job.bytes <= kCopiedBytes) {
    job.copy.resize(job.bytes);
    std::byte* at = job.copy.data();
    for (RecordedBlock& block : job.blocks) {
      if (!block.bytes.empty()) std::memcpy(at, block.bytes.data(), block.bytes.size());
      block.bytes = {at, block.bytes.size()};
      at += block.bytes.size();
    }
    job.holds.clear();
  }
  backlog_bytes_ += job.bytes;
  waiting_bytes_ += job.bytes;
  waiting_.push_back(std::move(job));
  if (waiting_bytes_ >= kBatchBytes || waiting_.size() >= kBatchOperations || !waiting_.back().holds.empty())
    hand_over();
}

bool DataRecorder::drain() {
  hand_over();
  return handed_over_ == 0;
}

Result<void> DataRecorder::write(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    if (canceled_) return {};
    PRISM_RETURN_IF_ERROR(writer_.add(job.comm, job.blocks));
  }
  return {};
}

void DataRecorder::hand_over() {
  if (waiting_.empty()) return;
  ++handed_over_;
  boost::asio::post(
      thread_, [this, jobs = std::exchange(waiting_, {}), bytes = std::exchange(waiting_bytes_, 0)]() mutable {
        auto result = write(jobs);
        if (!result) cancel();
        boost::asio::post(loop_, [this, jobs = std::move(jobs), bytes, result = std::move(result)]() mutable {
          jobs.clear();
          backlog_bytes_ -= bytes;
          --handed_over_;
          written_(result);
        });
      });
}

}  // namespace prism
